// Kubeadm is kubeadm as it is released, in a package of this module so that it is built apart from
// the programs that every test needs.
package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	utilerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() { utilerrors.HandleError(app.Run()) }
