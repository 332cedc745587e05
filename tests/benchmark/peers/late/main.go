// Command late passes requests on, each after a while, as they would reach a server that is far away.
//
//	late ADDRESS SERVER DELAY LOG
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

func main() {
	address, delay := os.Args[1], must(time.ParseDuration(os.Args[3]))
	lines := must(os.OpenFile(os.Args[4], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))
	proxy := httputil.NewSingleHostReverseProxy(must(url.Parse(os.Args[2])))
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	log.Fatal(http.ListenAndServe(address, http.HandlerFunc(func(answer http.ResponseWriter, asked *http.Request) {
		fmt.Fprintf(lines, "%s %s\n", asked.Method, asked.URL.RequestURI())
		time.Sleep(delay)
		proxy.ServeHTTP(answer, asked)
	})))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
