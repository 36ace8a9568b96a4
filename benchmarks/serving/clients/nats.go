package main

import (
	"time"

	"github.com/nats-io/nats.go"
)

const patience = time.Minute

type jetStream struct{ stream nats.JetStreamContext }

func openNATS(address string) place {
	connection, err := nats.Connect("nats://" + address)
	check(err)
	stream, err := connection.JetStream(nats.MaxWait(patience))
	check(err)
	if _, err := stream.StreamInfo(topic); err != nil {
		_, err = stream.AddStream(&nats.StreamConfig{Name: topic, Subjects: []string{topic}, Storage: nats.FileStorage})
		check(err)
	}
	return &jetStream{stream}
}

func (at *jetStream) send(body []byte) error {
	_, err := at.stream.Publish(topic, body)
	return err
}

func (at *jetStream) batch(bodies [][]byte) error {
	futures := make([]nats.PubAckFuture, len(bodies))
	for i, body := range bodies {
		var err error
		if futures[i], err = at.stream.PublishAsync(topic, body); err != nil {
			return err
		}
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		}
	}
	return nil
}

func (at *jetStream) consume(messages int) error {
	taker, err := at.stream.PullSubscribe(topic, "takers", nats.DeliverAll())
	if err != nil {
		return err
	}
	for taken := 0; taken < messages; {
		found, err := taker.Fetch(atOnce, nats.MaxWait(patience))
		if err != nil {
			return err
		}
		for _, message := range found {
			if err := message.Ack(); err != nil {
				return err
			}
		}
		taken += len(found)
	}
	return nil
}
