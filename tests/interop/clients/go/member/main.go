// A push consumer in a group that it shares with others; prints each message as it comes, until standard input ends.
//
//	member NAMESRV GROUP TOPIC
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	member, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{os.Args[1]}),
		consumer.WithGroupName(os.Args[2]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	var lines sync.Mutex
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lines.Lock()
		defer lines.Unlock()
		for _, message := range messages {
			fmt.Printf("{\"kind\":\"message\",\"body\":\"%s\",\"queue_id\":%d,\"queue_offset\":%d}\n",
				message.Body, message.Queue.QueueId, message.QueueOffset)
		}
		return consumer.ConsumeSuccess, nil
	}
	check(member.Subscribe(os.Args[3], consumer.MessageSelector{}, handle))
	check(member.Start())
	fmt.Println("{\"kind\":\"ready\"}")
	_, _ = io.Copy(io.Discard, os.Stdin)
	check(member.Shutdown())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
