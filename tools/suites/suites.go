// Package suites keeps the requirement of go-nsq in go.mod and go.sum: tools/strangers.py runs
// the tests of that module.
package suites

import _ "github.com/nsqio/go-nsq"
