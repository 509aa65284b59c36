package pod_test

import (
	"seedlet.dev/core/pod"
	"seedlet.dev/core/podstatus"
)

func init() {
	pod.Podstatus.Update, pod.Podstatus.ServedPod = podstatus.Update, podstatus.ServedPod
}
