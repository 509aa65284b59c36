package cri

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// Runtime returns a client on the port's own connection, for the handlers of requests about
// containers. A call through it is no effect of the core: it has no lane, no deadline but the
// caller's, and ends when the port is closed.
func (p *Port) Runtime() runtimeapi.RuntimeServiceClient { return p.runtime }

// Images returns a client of the image service in the same way.
func (p *Port) Images() runtimeapi.ImageServiceClient { return p.images }
