"""Make the environment that `make` works in: .venv, with everything at the versions of the lock files.

Usage: python3 conf/environment.py [DIRECTORY]

Needs nothing but Python's standard library.  What the machine lacks is said in one line with the command
that installs it; as root on Debian or Ubuntu it is installed.  An older Python has to be able to read this
file far enough to say that it is too old, hence no syntax that is newer than Python 3.6 in it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.10")
OLDEST_PYTHON = (3, 10)
JAVAS = (17, 21)
MAVEN = os.environ.get("MAVEN_REPOSITORY", "https://repo1.maven.org/maven2").rstrip("/")
TRIES = 3


def main():
    venv = Path(sys.argv[1] if len(sys.argv) > 1 else ".venv").absolute()
    check_python()
    check_java()
    make_venv(venv)
    install_packages(venv)
    compile_kernels(venv)
    fetch_jars(ROOT / "conf" / "jars.lock", venv / "jars")
    say("ready: %s" % venv)


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    sys.exit("error: " + text)


def check_python():
    """Go on with a newer Python when this one is too old and another is there."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    for name in PYTHONS:
        path = shutil.which(name)
        if path:
            os.execv(path, [path] + sys.argv)
    fail(
        "Python 3.10 or newer is needed, this is %s; install one with: %s"
        % (
            sys.version.split()[0],
            how_to_install(apt="python3.11 python3.11-venv", dnf="python3.11", brew="python@3.13"),
        )
    )


def check_java():
    java = find_java()
    version = java_version(java) if java else None
    if version in JAVAS:
        return
    package = debian_java()
    if can_apt() and "JAVA_HOME" not in os.environ:
        apt_install(package)
        java = find_java()
        version = java_version(java) if java else None
        if version in JAVAS:
            return
    command = how_to_install(apt=package, dnf="java-21-openjdk-headless", brew="openjdk@17")
    if java is None:
        fail("Java 17 or 21 is needed and none was found; install it with: " + command)
    fail(
        "Java 17 or 21 is needed, %s is %s; set JAVA_HOME to one, or install it with: %s"
        % (java, "Java %d" % version if version else "none that works", command)
    )


def find_java():
    """Find Java where Spark will look for it."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java")


def java_version(java):
    try:
        done = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stdout.decode(errors="replace"))
    return int(found.group(1)) if found else None


def debian_java():
    """Name the package: a Debian release has one of the two, seldom both."""
    name = "openjdk-%d-jre-headless"
    if shutil.which("apt-cache"):
        for version in JAVAS:
            done = subprocess.run(["apt-cache", "show", name % version], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if done.returncode == 0 and done.stdout:
                return name % version
    return name % JAVAS[0]


def make_venv(venv):
    python = venv / "bin" / "python"
    if works(python):
        return
    if not has_venv():
        package = "python%d.%d-venv" % sys.version_info[:2]
        if can_apt():
            apt_install(package)
        if not has_venv():
            fail("Python's venv module is incomplete; install it with: " + how_to_install(apt=package))
    say("making %s with Python %s" % (venv, sys.version.split()[0]))
    run([sys.executable, "-m", "venv", "--clear", str(venv)])


def works(python):
    """Say whether the environment's Python is there, of this version, and has pip."""
    try:
        done = subprocess.run(
            [str(python), "-c", "import pip, sys; print(sys.version_info[:2])"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.decode().strip() == str(tuple(sys.version_info[:2]))


def has_venv():
    return run([sys.executable, "-c", "import ensurepip, venv"], quiet=True) == 0


def install_packages(venv):
    """Install the locked versions; what builds them is locked too, so nothing is built in isolation."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--constraint", str(ROOT / "conf" / "requirements.lock")]
    say("installing Python packages")
    run(pip + ["setuptools", "wheel"])
    run(pip + ["--no-build-isolation", "--editable", "%s[spark,dev]" % ROOT])


def compile_kernels(venv):
    """Compile the kernels ahead, so that no process has to; where there is no C compiler, each compiles its own."""
    say("compiling kernels")
    run([str(venv / "bin" / "python"), "-m", "walreplay.kernel_build"])


def fetch_jars(lock, directory):
    """Fetch the JARs of a lock file, and remove those that are no longer in it."""
    directory.mkdir(parents=True, exist_ok=True)
    wanted = set()
    for line in lock.read_text().splitlines():
        if line and not line.startswith("#"):
            digest, path = line.split()
            target = directory / path.rsplit("/", 1)[1]
            wanted.add(target)
            if not (target.exists() and sha256(target.read_bytes()) == digest):
                say("fetching " + target.name)
                save(fetch(MAVEN + "/" + path, digest), target)
    for left in set(directory.iterdir()) - wanted:
        left.unlink()


def fetch(url, digest):
    problem = ""
    for _ in range(TRIES):
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:
                data = answer.read()
        except (urllib.error.URLError, OSError) as error:
            problem = str(error)
            continue
        if sha256(data) == digest:
            return data
        problem = "its SHA-256 is %s and not %s" % (sha256(data), digest)
    return fail("cannot fetch %s: %s; MAVEN_REPOSITORY can name a mirror" % (url, problem))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def save(data, target):
    """Write a file whole or not at all."""
    partial = target.with_name(target.name + ".part")
    partial.write_bytes(data)
    partial.replace(target)


def can_apt():
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(package):
    say("installing " + package)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run(["apt-get", "update", "-qq"], quiet=True, env=environment)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], quiet=True, env=environment)


def how_to_install(apt, dnf=None, brew=None):
    if shutil.which("apt-get"):
        return ("" if os.geteuid() == 0 else "sudo ") + "apt-get install " + apt
    if dnf and shutil.which("dnf"):
        return "sudo dnf install " + dnf
    if brew and shutil.which("brew"):
        return "brew install " + brew
    return "your system's package manager"


def run(command, quiet=False, env=None):
    """Run a command; one that fails ends the whole, unless its caller looks itself (quiet)."""
    done = subprocess.run(
        command,
        stdout=subprocess.DEVNULL if quiet else None,
        stderr=subprocess.DEVNULL if quiet else None,
        env=env,
    )
    if done.returncode and not quiet:
        fail("this command failed: " + " ".join(command))
    return done.returncode


if __name__ == "__main__":
    main()
