from pyspark.logger import PySparkLogger

from walreplay.session.isolation import quiet_queries


def test_pyspark_does_not_log_the_errors_that_it_raises_while_a_run_goes_on(capfd):
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before = logger.level
    with quiet_queries():
        try:
            raise ValueError("SECRET")
        except ValueError:
            logger.exception("SECRET", errorClass="SOME_CONDITION")
    assert "SECRET" not in capfd.readouterr().err
    assert logger.level == before
