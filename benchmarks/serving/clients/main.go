// Peers does the same work on RocketMQ, Redis Streams and NATS JetStream, each by its own Go client.
//
//	peers KIND HOST:PORT send SENDERS MESSAGES BYTES
//	peers KIND HOST:PORT batches BATCH MESSAGES BYTES
//	peers KIND HOST:PORT consume MESSAGES
//	peers KIND HOST:PORT latency PER_SECOND SECONDS BYTES
//
// It prints one line of JSON. Sends and batches are done a fifth more before they are measured.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A place keeps messages in one topic, subject or stream. Send and batch return when the server has answered.
type place interface {
	send(body []byte) error
	batch(bodies [][]byte) error
	// consume takes so many messages from the first one on, and acknowledges each.
	consume(messages int) error
}

const topic = "peers"

func main() {
	kind, address, work := os.Args[1], os.Args[2], os.Args[3]
	var numbers []int
	for _, text := range os.Args[4:] {
		number, err := strconv.Atoi(text)
		check(err)
		numbers = append(numbers, number)
	}
	at := opened(kind, address)
	switch work {
	case "send":
		body := make([]byte, numbers[2])
		send(at, numbers[0], numbers[1]/5, body)
		measured(numbers[1], func() { send(at, numbers[0], numbers[1], body) })
	case "batches":
		bodies := make([][]byte, numbers[0])
		for i := range bodies {
			bodies[i] = make([]byte, numbers[2])
		}
		batches(at, numbers[1]/5/len(bodies), bodies)
		measured(numbers[1], func() { batches(at, numbers[1]/len(bodies), bodies) })
	case "consume":
		measured(numbers[0], func() { check(at.consume(numbers[0])) })
	case "latency":
		latency(at, numbers[0], numbers[1], make([]byte, numbers[2]))
	default:
		check(fmt.Errorf("no such work: %s", work))
	}
}

func opened(kind, address string) place {
	switch kind {
	case "rocketmq":
		return openRocketMQ(address)
	case "redis":
		return openRedis(address)
	case "nats":
		return openNATS(address)
	}
	check(fmt.Errorf("no such kind: %s", kind))
	return nil
}

func send(at place, senders, messages int, body []byte) {
	var left atomic.Int64
	left.Store(int64(messages))
	var all sync.WaitGroup
	for i := 0; i < senders; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for left.Add(-1) >= 0 {
				check(at.send(body))
			}
		}()
	}
	all.Wait()
}

func batches(at place, count int, bodies [][]byte) {
	for i := 0; i < count; i++ {
		check(at.batch(bodies))
	}
}

// latency sends at a steady rate, and counts the time since each send was due.
func latency(at place, perSecond, seconds int, body []byte) {
	took := make([]int64, 0, perSecond*seconds)
	begun := time.Now()
	for i := 0; i < perSecond*seconds; i++ {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(due))
		check(at.send(body))
		took = append(took, int64(time.Since(due)))
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	told(map[string]int64{"median_ns": took[len(took)/2], "p99_ns": took[len(took)*99/100]})
}

func measured(messages int, work func()) {
	begun := time.Now()
	work()
	told(map[string]int64{"messages": int64(messages), "took_ns": int64(time.Since(begun))})
}

func told(line map[string]int64) { check(json.NewEncoder(os.Stdout).Encode(line)) }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
