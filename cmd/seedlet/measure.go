package main

import (
	"time"

	"google.golang.org/grpc"

	"seedlet.dev/realworld/measure"
)

// measured makes the numbers that the ports measure.
func (n *node) measured(s settings) *measure.Numbers {
	options := measure.Options{Version: version}
	if s.api.kubeconfig != "" {
		options.ClientExpiry = func() time.Time {
			if n.api == nil {
				return time.Time{}
			}
			return n.api.identity.Expiry()
		}
	}
	return measure.New(options)
}

// runtimeOptions are those of connections to the runtime.
func runtimeOptions(numbers *measure.Numbers) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(numbers.RuntimeCalls)}
}
