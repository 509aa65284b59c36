// Etcd is the program of etcd, of the version that this release of kubeadm writes a static pod for:
// Debian's is older, and refuses its flags.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
