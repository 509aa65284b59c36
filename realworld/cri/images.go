package cri

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// Images is a client of the port's own connection to the image service, under the same terms as
// Runtime.
func (p *Port) Images() runtimeapi.ImageServiceClient { return p.images }
