// Consume measures go-nsq's Consumer with a handler that only counts.
//
//	consume address[,address...] topic channel count max_in_flight workers [layer ...]
package main

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"

	"nsqclient.invalid/benchmarks/go/layers"
)

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	if len(os.Args) < 7 {
		log.Fatal("usage: consume address[,address...] topic channel count max_in_flight workers [layer ...]")
	}
	address, topic, channel := os.Args[1], os.Args[2], os.Args[3]
	count, maxInFlight, workers := int64(number(os.Args[4])), number(os.Args[5]), number(os.Args[6])

	config := layers.Config(os.Args[7:])
	config.MaxInFlight = maxInFlight
	consumer, err := nsq.NewConsumer(topic, channel, config)
	if err != nil {
		log.Fatal(err)
	}
	consumer.SetLoggerLevel(nsq.LogLevelError)

	var handled int64
	var first, last time.Time
	done := make(chan struct{})
	consumer.AddConcurrentHandlers(nsq.HandlerFunc(func(*nsq.Message) error {
		switch atomic.AddInt64(&handled, 1) {
		case 1:
			first = time.Now()
		case count:
			last = time.Now()
			close(done)
		}
		return nil
	}), workers)

	if err := consumer.ConnectToNSQDs(strings.Split(address, ",")); err != nil {
		log.Fatal(err)
	}
	<-done
	consumer.Stop()
	<-consumer.StopChan

	err = json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"name":     "go-nsq",
		"version":  nsq.VERSION,
		"messages": count,
		"seconds":  last.Sub(first).Seconds(),
	})
	if err != nil {
		log.Fatal(err)
	}
}
