"""The utilities: nsq_tail, nsq_to_file, nsq_to_http, nsq_to_nsq, nsq_stat and to_nsq."""
