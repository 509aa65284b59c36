package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// verdict records the states that the example pods have reached.
type verdict struct {
	last      map[string]*v1.Pod // by the name in the manifest
	backedOff map[string]bool    // was seen in CrashLoopBackOff
}

func newVerdict() *verdict {
	return &verdict{last: map[string]*v1.Pod{}, backedOff: map[string]bool{}}
}

func (v *verdict) observe(pods []v1.Pod) {
	for i := range pods {
		pod := &pods[i]
		name := strings.TrimSuffix(pod.Name, "-playground")
		v.last[name] = pod
		if podStatus(pod) == "CrashLoopBackOff" {
			v.backedOff[name] = true
		}
	}
}

// check returns an error for example pods that have not reached their expected state, and compares
// them with the runtime.
func (v *verdict) check(ctx context.Context, runtime runtimeapi.RuntimeServiceClient) error {
	problems := []error{v.web(), v.crasher(), v.job(), checkRuntime(ctx, runtime)}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	printProgress("every pod reached what it should")
	return nil
}

func (v *verdict) web() error {
	pod := v.last["web"]
	switch {
	case pod == nil:
		return errors.New("pod web was never seen")
	case pod.Status.Phase != v1.PodRunning, ready(pod) != "1/1":
		return fmt.Errorf("pod web is %s with %s ready, it should be Running with 1/1",
			podStatus(pod), ready(pod))
	}
	return nil
}

func (v *verdict) crasher() error {
	pod := v.last["crasher"]
	switch {
	case pod == nil:
		return errors.New("pod crasher was never seen")
	case restarts(pod) == 0:
		return errors.New("pod crasher was not restarted")
	case !v.backedOff["crasher"]:
		return errors.New("pod crasher was never in CrashLoopBackOff")
	}
	return nil
}

func (v *verdict) job() error {
	pod := v.last["job"]
	switch {
	case pod == nil:
		return errors.New("pod job was never seen")
	case pod.Status.Phase != v1.PodSucceeded:
		return fmt.Errorf("pod job is %s, it should be Succeeded", podStatus(pod))
	}
	return nil
}

// checkRuntime compares the pods with the runtime: web's container runs, and the others have exited
// containers.
func checkRuntime(ctx context.Context, runtime runtimeapi.RuntimeServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("asking the runtime for its containers: %w", err)
	}
	running := map[string]bool{}
	known := map[string]bool{}
	for _, c := range answer.Containers {
		pod := strings.TrimSuffix(c.Labels["io.kubernetes.pod.name"], "-playground")
		known[pod] = true
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running[pod] = true
		}
	}
	var problems []error
	for _, pod := range []string{"web", "crasher", "job"} {
		if !known[pod] {
			problems = append(problems, fmt.Errorf("the runtime has no container of pod %s", pod))
		}
	}
	if !running["web"] {
		problems = append(problems, errors.New("the runtime runs no container of pod web"))
	}
	return errors.Join(problems...)
}
