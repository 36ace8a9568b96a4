package main

import (
	"context"
	"sync/atomic"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type rocketMQ struct {
	servers primitive.NamesrvAddr
	sender  rocketmq.Producer
}

func openRocketMQ(address string) place {
	rlog.SetLogLevel("error")
	servers := primitive.NamesrvAddr{address}
	sender, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName("peers"))
	check(err)
	check(sender.Start())
	return &rocketMQ{servers, sender}
}

func (at *rocketMQ) send(body []byte) error {
	_, err := at.sender.SendSync(context.Background(), primitive.NewMessage(topic, body))
	return err
}

func (at *rocketMQ) batch(bodies [][]byte) error {
	messages := make([]*primitive.Message, len(bodies))
	for i, body := range bodies {
		messages[i] = primitive.NewMessage(topic, body)
	}
	_, err := at.sender.SendSync(context.Background(), messages...)
	return err
}

func (at *rocketMQ) consume(messages int) error {
	worker, err := rocketmq.NewPushConsumer(consumer.WithNameServer(at.servers), consumer.WithGroupName("takers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(messages))
	done := make(chan struct{}, 1)
	handle := func(_ context.Context, found ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if left.Add(-int64(len(found))) <= 0 {
			select {
			case done <- struct{}{}:
			default:
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := worker.Subscribe(topic, consumer.MessageSelector{}, handle); err != nil {
		return err
	}
	if err := worker.Start(); err != nil {
		return err
	}
	<-done
	return nil
}
