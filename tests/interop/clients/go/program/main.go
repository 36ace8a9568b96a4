// What RocketMQ's Go client does against any server, by the same commands and lines of JSON as the Java program beside it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	command, rest := os.Args[1], os.Args[2:]
	switch command {
	case "produce": // NAMESRV TOPIC: messages in every way of a producer
		produce(rest[0], rest[1])
	case "take": // NAMESRV GROUP TOPIC WAY EXPRESSION: a member of a group, until standard input ends
		take(rest[0], rest[1], rest[2], rest[3], rest[4])
	case "request": // NAMESRV GROUP TOPIC BODY: a request, and its reply
		request(rest[0], rest[1], rest[2], rest[3])
	case "reply": // NAMESRV GROUP EXPECTED TOPIC: replies to so many requests
		reply(rest[0], rest[1], rest[2], rest[3])
	default:
		check(fmt.Errorf("no such command: %s", command))
	}
	line(fields{"kind": "done"})
}

type fields map[string]any

var lines sync.Mutex

func line(what fields) {
	text, err := json.Marshal(what)
	check(err)
	lines.Lock()
	defer lines.Unlock()
	fmt.Printf("%s\n", text)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
