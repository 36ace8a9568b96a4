package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Sends one request and prints its reply.
func request(server, group, topic, body string) {
	asking, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{server}), producer.WithGroupName(group),
		producer.WithInstanceName(group)) // else it has the id of the client that replies
	check(err)
	check(asking.Start())
	found, err := asking.Request(context.Background(), longest, primitive.NewMessage(topic, []byte(body)))
	check(err)
	line(fields{"kind": "reply", "body": base64.StdEncoding.EncodeToString(found.Body)})
	check(asking.Shutdown())
}

// Replies to so many requests: with the body that each has, and "re " in front.
func reply(server, group, expected, topic string) {
	left, err := strconv.Atoi(expected)
	check(err)
	servers := primitive.NamesrvAddr{server}
	answering, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName(group+"-replies"))
	check(err)
	check(answering.Start())
	member, err := rocketmq.NewPushConsumer(consumer.WithNameServer(servers), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	done := make(chan bool, left)
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, asked := range messages {
			sent, err := answering.SendSync(context.Background(), replyTo(asked))
			check(err)
			line(fields{"kind": "replied", "status": map[bool]string{true: "SEND_OK"}[sent.Status == primitive.SendOK]})
			done <- true
		}
		return consumer.ConsumeSuccess, nil
	}
	check(member.Subscribe(topic, consumer.MessageSelector{}, handle))
	check(member.Start())
	for ; left > 0; left-- {
		select {
		case <-done:
		case <-time.After(longest):
			check(fmt.Errorf("%d requests did not come", left))
		}
	}
	check(member.Shutdown())
	check(answering.Shutdown())
}

// The client has no function for this: an application copies the properties.
func replyTo(asked *primitive.MessageExt) *primitive.Message {
	made := primitive.NewMessage(asked.GetProperty("CLUSTER")+"_REPLY_TOPIC", append([]byte("re "), asked.Body...))
	made.WithProperty("MSG_TYPE", "reply")
	for _, name := range []string{"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"} {
		made.WithProperty(name, asked.GetProperty(name))
	}
	return made
}
