// Latency measures how long a message takes from publish to the start of go-nsq's handler.
//
//	latency address topic channel count
package main

import (
	"encoding/binary"
	"encoding/json"
	"log"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/nsqio/go-nsq"
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: latency address topic channel count")
	}
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	config := nsq.NewConfig()
	config.OutputBufferSize = -1
	consumer, err := nsq.NewConsumer(os.Args[2], os.Args[3], config)
	if err != nil {
		log.Fatal(err)
	}
	consumer.SetLoggerLevel(nsq.LogLevelError)

	var took []float64
	done := make(chan struct{})
	consumer.AddHandler(nsq.HandlerFunc(func(message *nsq.Message) error {
		now := time.Now().UnixNano()
		took = append(took, float64(now-int64(binary.BigEndian.Uint64(message.Body)))/1000)
		if len(took) == count {
			close(done)
		}
		return nil
	}))
	if err := consumer.ConnectToNSQD(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	<-done
	consumer.Stop()
	<-consumer.StopChan

	sort.Float64s(took)
	err = json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"name":    "go-nsq",
		"version": nsq.VERSION,
		"p50_us":  took[count/2],
		"p99_us":  took[count*99/100],
	})
	if err != nil {
		log.Fatal(err)
	}
}
