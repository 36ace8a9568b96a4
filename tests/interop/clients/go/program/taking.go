package main

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Takes messages in one way: plain, ordered, broadcast, tags, sql92, traced or lite.
func take(server, group, topic, way, expression string) {
	options := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{server}),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	selector := consumer.MessageSelector{}
	switch way {
	case "ordered":
		options = append(options, consumer.WithConsumerOrder(true))
	case "broadcast":
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	case "tags":
		selector = consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	case "sql92":
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
	case "traced":
		options = append(options, consumer.WithTrace(&primitive.TraceConfig{
			GroupName: group,
			Access:    primitive.Local,
			Resolver:  primitive.NewPassthroughResolver([]string{server}),
		}))
	}
	if way == "lite" {
		pull(options, topic)
	} else {
		push(options, topic, selector)
	}
}

func push(options []consumer.Option, topic string, selector consumer.MessageSelector) {
	member, err := rocketmq.NewPushConsumer(options...)
	check(err)
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		show(messages)
		return consumer.ConsumeSuccess, nil
	}
	check(member.Subscribe(topic, selector, handle))
	check(member.Start())
	line(fields{"kind": "ready"})
	_, _ = io.Copy(io.Discard, os.Stdin)
	check(member.Shutdown())
}

func pull(options []consumer.Option, topic string) {
	member, err := rocketmq.NewPullConsumer(options...)
	check(err)
	check(member.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	check(member.Start())
	var ends atomic.Bool
	ended := make(chan bool)
	go func() {
		for !ends.Load() {
			taken, err := member.Poll(context.Background(), 200*time.Millisecond)
			if err == consumer.ErrNoNewMsg {
				continue
			}
			check(err)
			show(taken.GetMsgList())
			member.ACK(context.Background(), taken, consumer.ConsumeSuccess)
		}
		ended <- true
	}()
	line(fields{"kind": "ready"})
	_, _ = io.Copy(io.Discard, os.Stdin)
	ends.Store(true)
	<-ended
	check(member.Shutdown())
}

func show(messages []*primitive.MessageExt) {
	for _, message := range messages {
		line(fields{
			"kind": "message", "body": string(message.Body), "queue_id": message.Queue.QueueId,
			"queue_offset": message.QueueOffset, "id": message.MsgId, "tags": message.GetTags(),
			"at_ms": time.Now().UnixMilli(),
		})
	}
}
