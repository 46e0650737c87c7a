// go-nsq, pinned, whose own tests tools/strangers.py runs.
module nsqclient.invalid/tools/suites

go 1.17

require github.com/nsqio/go-nsq v1.1.0

require github.com/golang/snappy v0.0.4 // indirect
