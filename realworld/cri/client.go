package cri

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// Runtime is a client of the port's own connection, for those who serve requests about containers.
// What is called through it is no effect of the core: it has no lane, no deadline but the
// caller's, and ends when the port is closed.
func (p *Port) Runtime() runtimeapi.RuntimeServiceClient { return p.runtime }

// Images is likewise a client of the image service.
func (p *Port) Images() runtimeapi.ImageServiceClient { return p.images }
