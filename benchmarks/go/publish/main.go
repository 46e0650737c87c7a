// Publish measures go-nsq's Producer.
//
//	publish address topic count size sync|syncN|multi|async [layer ...]
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nsqio/go-nsq"

	"nsqclient.invalid/benchmarks/go/layers"
)

const batch = 1000

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func publish(producer *nsq.Producer, topic string, body []byte, count int) {
	for i := 0; i < count; i++ {
		check(producer.Publish(topic, body))
	}
}

func publishConcurrently(
	producer *nsq.Producer, topic string, body []byte, count int, goroutines int,
) {
	var all sync.WaitGroup
	for i := 0; i < goroutines; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			publish(producer, topic, body, count/goroutines)
		}()
	}
	all.Wait()
}

func publishMany(producer *nsq.Producer, topic string, body []byte, count int) {
	bodies := make([][]byte, batch)
	for i := range bodies {
		bodies[i] = body
	}
	for i := 0; i < count/batch; i++ {
		check(producer.MultiPublish(topic, bodies))
	}
}

func publishAsync(producer *nsq.Producer, topic string, body []byte, count int) {
	answers := make(chan *nsq.ProducerTransaction, count)
	for i := 0; i < count; i++ {
		check(producer.PublishAsync(topic, body, answers))
	}
	for i := 0; i < count; i++ {
		check((<-answers).Error)
	}
}

func main() {
	if len(os.Args) < 6 {
		log.Fatal("usage: publish address topic count size sync|syncN|multi|async [layer ...]")
	}
	address, topic, mode := os.Args[1], os.Args[2], os.Args[5]
	count, size := number(os.Args[3]), number(os.Args[4])

	producer, err := nsq.NewProducer(address, layers.Config(os.Args[6:]))
	check(err)
	producer.SetLoggerLevel(nsq.LogLevelError)
	check(producer.Ping())

	run := map[string]func(*nsq.Producer, string, []byte, int){
		"sync": publish, "multi": publishMany, "async": publishAsync,
	}[mode]
	if goroutines, err := strconv.Atoi(strings.TrimPrefix(mode, "sync")); err == nil {
		run = func(producer *nsq.Producer, topic string, body []byte, count int) {
			publishConcurrently(producer, topic, body, count, goroutines)
		}
	}
	if run == nil {
		log.Fatal("unknown mode " + mode)
	}
	body := bytes.Repeat([]byte("x"), size)
	started := time.Now()
	run(producer, topic, body, count)
	seconds := time.Since(started).Seconds()
	producer.Stop()

	check(json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"name": "go-nsq", "version": nsq.VERSION, "messages": count, "seconds": seconds,
	}))
}
