package main

import (
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/podresources"
)

// servePodResources opens the socket of the pod resources API. Pods run without it, so a failure is
// only logged.
func (n *node) servePodResources(s settings) {
	server, err := podresources.Listen(podresources.Options{RootDir: s.rootDir,
		Pods: n.requests.Pods, Interceptor: n.metrics.PodResourceCalls})
	if err != nil {
		klog.ErrorS(err, "serving the pod resources API failed")
		return
	}
	n.podResources = server
}
