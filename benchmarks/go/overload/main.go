// Overload measures go-nsq's Consumer with a handler that waits, and more in flight than it can
// handle in time.
//
//	overload address[,address...] topic channel count max_in_flight workers handler_ms msg_timeout
package main

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nsqio/go-nsq"
)

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func seconds(value float64) time.Duration {
	return time.Duration(value * float64(time.Second))
}

type handler struct {
	sync.Mutex
	wait         time.Duration
	count        int
	seen, unseen map[string]bool
	handled      int
	slept        time.Duration
	first, last  time.Time
	done         chan struct{}
}

func (h *handler) note(message *nsq.Message, where map[string]bool) {
	h.Lock()
	defer h.Unlock()
	h.last = time.Now()
	body := string(message.Body)
	if h.seen[body] || h.unseen[body] {
		return
	}
	where[body] = true
	if len(h.seen)+len(h.unseen) == h.count {
		close(h.done)
	}
}

func (h *handler) HandleMessage(message *nsq.Message) error {
	h.Lock()
	if h.handled == 0 {
		h.first = time.Now()
	}
	h.handled++
	h.Unlock()
	started := time.Now()
	time.Sleep(h.wait)
	h.note(message, h.seen)
	h.Lock()
	h.slept += time.Since(started)
	h.Unlock()
	return nil
}

// LogFailedMessage is called with a message that is given up.
func (h *handler) LogFailedMessage(message *nsq.Message) {
	h.note(message, h.unseen)
}

func main() {
	if len(os.Args) < 9 {
		log.Fatal("usage: overload address[,address...] topic channel count max_in_flight workers" +
			" handler_ms msg_timeout")
	}
	config := nsq.NewConfig()
	config.MaxInFlight = int(number(os.Args[5]))
	config.MsgTimeout = seconds(number(os.Args[8]))
	consumer, err := nsq.NewConsumer(os.Args[2], os.Args[3], config)
	if err != nil {
		log.Fatal(err)
	}
	consumer.SetLoggerLevel(nsq.LogLevelMax)
	work := &handler{
		wait: seconds(number(os.Args[7]) / 1000), count: int(number(os.Args[4])),
		seen: map[string]bool{}, unseen: map[string]bool{}, done: make(chan struct{}),
	}
	consumer.AddConcurrentHandlers(work, int(number(os.Args[6])))
	if err := consumer.ConnectToNSQDs(strings.Split(os.Args[1], ",")); err != nil {
		log.Fatal(err)
	}
	<-work.done
	consumer.Stop()
	<-consumer.StopChan

	err = json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"name":     "go-nsq",
		"version":  nsq.VERSION,
		"messages": len(work.seen),
		"handled":  work.handled,
		"unseen":   len(work.unseen),
		"seconds":  work.last.Sub(work.first).Seconds(),
		"mean":     work.slept.Seconds() / float64(work.handled),
	})
	if err != nil {
		log.Fatal(err)
	}
}
