"""Job data from the KVS: service ``job-info``; `service` has its methods, `watch` its streams."""
