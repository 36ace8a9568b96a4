package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	each    = 5
	level1s = 1
	longest = 60 * time.Second
)

// Sends five messages in each way, the first ones with traces, and a transaction of each kind; prints each.
func produce(server, topic string) {
	traced := started(server, "producing-traced", producer.WithTrace(&primitive.TraceConfig{
		GroupName: "producing-traced",
		Access:    primitive.Local,
		Resolver:  primitive.NewPassthroughResolver([]string{server}),
	})) // this client fails when it is to trace what is sent in another way
	for number := 0; number < each; number++ {
		sent, err := traced.SendSync(context.Background(), message(topic, "sync", number))
		printed("sync", number, sent, err)
	}
	sender := started(server, "producing")
	async(sender, topic)
	for number := 0; number < each; number++ {
		check(sender.SendOneWay(context.Background(), message(topic, "oneway", number)))
	}
	batch := []*primitive.Message{}
	for number := 0; number < each; number++ {
		batch = append(batch, message(topic, "batch", number))
	}
	sent, err := sender.SendSync(context.Background(), batch...)
	printed("batch", 0, sent, err)
	for number := 0; number < each; number++ {
		sent, err := sender.SendSync(context.Background(), message(topic, "delayed", number).WithDelayTimeLevel(level1s))
		printed("delayed", number, sent, err)
	}
	transactions(server, topic)
	time.Sleep(time.Second) // the client sends traces in the background
	check(sender.Shutdown())
	check(traced.Shutdown())
}

func started(server, group string, more ...producer.Option) rocketmq.Producer {
	options := append(more, producer.WithNameServer(primitive.NamesrvAddr{server}), producer.WithGroupName(group),
		producer.WithInstanceName(group), producer.WithSendMsgTimeout(longest))
	sender, err := rocketmq.NewProducer(options...)
	check(err)
	check(sender.Start())
	return sender
}

func async(sender rocketmq.Producer, topic string) {
	var left sync.WaitGroup
	left.Add(each)
	for number := 0; number < each; number++ {
		done := func(_ context.Context, sent *primitive.SendResult, err error) {
			printed("async", number, sent, err)
			left.Done()
		}
		check(sender.SendAsync(context.Background(), done, message(topic, "async", number)))
	}
	left.Wait()
}

// The body says what becomes of a transaction. One that is left open is committed when the broker asks.
type listener struct{ asked chan bool }

func (l *listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch way, _, _ := strings.Cut(string(message.Body), " "); way {
	case "committed":
		return primitive.CommitMessageState
	case "rolled-back":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (l *listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	line(fields{"kind": "asked", "body": string(message.Body)})
	l.asked <- true
	return primitive.CommitMessageState
}

func transactions(server, topic string) {
	answers := &listener{make(chan bool, 1)}
	sender, err := rocketmq.NewTransactionProducer(answers,
		producer.WithNameServer(primitive.NamesrvAddr{server}),
		producer.WithGroupName("transacting"),
		producer.WithSendMsgTimeout(longest),
		producer.WithInstanceName("transacting"), // else it shares the client of the other producer, and is not asked
	)
	check(err)
	check(sender.Start())
	for _, way := range []string{"committed", "rolled-back", "open"} {
		sent, err := sender.SendMessageInTransaction(context.Background(), message(topic, way, 0))
		check(err)
		printed(way, 0, sent.SendResult, err)
	}
	select {
	case <-answers.asked:
	case <-time.After(longest):
		check(fmt.Errorf("did not come: question about a transaction"))
	}
	time.Sleep(time.Second) // the answer is sent one way
	check(sender.Shutdown())
}

func message(topic, way string, number int) *primitive.Message {
	body := way + " " + strconv.Itoa(number)
	made := primitive.NewMessage(topic, []byte(body))
	made.WithTag(way)
	made.WithKeys([]string{strings.ReplaceAll(body, " ", "-")})
	made.WithProperty("number", strconv.Itoa(number))
	return made
}

func printed(way string, number int, sent *primitive.SendResult, err error) {
	check(err)
	status := map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK"}[sent.Status]
	line(fields{"kind": "sent", "way": way, "number": number, "id": sent.MsgID, "status": status})
}
