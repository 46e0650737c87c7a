// Package layers turns the byte layers of a task into options of go-nsq.
package layers

import (
	"log"
	"strings"

	"github.com/nsqio/go-nsq"
)

// Config asks for layers: "snappy", "deflate", "tls=FILE" with the authority to trust.
func Config(layers []string) *nsq.Config {
	config := nsq.NewConfig()
	set := func(option string, value interface{}) {
		if err := config.Set(option, value); err != nil {
			log.Fatal(err)
		}
	}
	for _, layer := range layers {
		if strings.HasPrefix(layer, "tls=") {
			set("tls_v1", true)
			set("tls_root_ca_file", strings.TrimPrefix(layer, "tls="))
		} else {
			set(layer, true)
		}
	}
	return config
}
