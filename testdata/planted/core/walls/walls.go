// Package walls imports what core may not.
package walls

import (
	_ "fmt"
	_ "os"
	_ "sync"

	_ "github.com/spf13/cobra"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/kubernetes"

	_ "seedlet.dev/realworld"
	_ "seedlet.dev/world"
)
