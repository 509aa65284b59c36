// Package sim imports what sim may not.
package sim

import (
	_ "os"

	_ "k8s.io/kubernetes/pkg/kubelet"

	_ "seedlet.dev/realworld"
)
