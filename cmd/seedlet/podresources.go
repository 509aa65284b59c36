package main

import (
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/podresources"
)

// servePodResources opens the socket of the pod resources API. What cannot be opened keeps no pod
// from running: it is told.
func (n *node) servePodResources(s settings) {
	server, err := podresources.Listen(podresources.Options{RootDir: s.rootDir,
		Pods: n.requests.Pods, Measure: n.numbers.PodResourceCalls})
	if err != nil {
		klog.ErrorS(err, "cannot serve the pod resources API")
		return
	}
	n.podResources = server
}
