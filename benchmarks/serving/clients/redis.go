package main

import (
	"context"

	"github.com/redis/go-redis/v9"
)

const atOnce = 32

type redisStreams struct{ client *redis.Client }

func openRedis(address string) place {
	return &redisStreams{redis.NewClient(&redis.Options{Addr: address, PoolSize: 64})}
}

func (at *redisStreams) send(body []byte) error {
	return at.client.XAdd(context.Background(), entry(body)).Err()
}

func (at *redisStreams) batch(bodies [][]byte) error {
	_, err := at.client.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
		for _, body := range bodies {
			pipe.XAdd(context.Background(), entry(body))
		}
		return nil
	})
	return err
}

func (at *redisStreams) consume(messages int) error {
	ctx := context.Background()
	if err := at.client.XGroupCreate(ctx, topic, "takers", "0").Err(); err != nil {
		return err
	}
	wanted := &redis.XReadGroupArgs{Group: "takers", Consumer: "one", Streams: []string{topic, ">"}, Count: atOnce}
	for taken := 0; taken < messages; {
		streams, err := at.client.XReadGroup(ctx, wanted).Result()
		if err != nil {
			return err
		}
		ids := make([]string, 0, atOnce)
		for _, message := range streams[0].Messages {
			ids = append(ids, message.ID)
		}
		if err := at.client.XAck(ctx, topic, "takers", ids...).Err(); err != nil {
			return err
		}
		taken += len(ids)
	}
	return nil
}

func entry(body []byte) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: topic, Values: []any{"body", body}}
}
