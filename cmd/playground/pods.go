package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
)

// fetchPods reads all pods from the agent's read-only port.
func fetchPods(ctx context.Context, url string) ([]v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for the pods: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for the pods: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // the body is read to its end below
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for the pods: %s", answer.Status)
	}
	var list v1.PodList
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("reading the pods: %w", err)
	}
	return list.Items, nil
}

// podStatus returns the status of a pod in one word, as kubectl does: the reason why it does not
// run, or its phase.
func podStatus(pod *v1.Pod) string {
	if done, word := initProgress(pod); !done {
		return word
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			return c.State.Terminated.Reason
		}
	}
	return string(pod.Status.Phase)
}

// initProgress reports whether all init containers have completed, and how many have.
func initProgress(pod *v1.Pod) (done bool, word string) {
	completed, reason := 0, ""
	for _, c := range pod.Status.InitContainerStatuses {
		switch {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
			completed++
		case c.State.Terminated != nil:
			reason = c.State.Terminated.Reason
		case c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing":
			reason = c.State.Waiting.Reason
		}
	}
	total := len(pod.Spec.InitContainers)
	if completed == total || len(pod.Status.InitContainerStatuses) == 0 {
		return true, ""
	}
	if reason != "" {
		return false, "Init:" + reason
	}
	return false, fmt.Sprintf("Init:%d/%d", completed, total)
}

// ready returns the number of ready containers and of all.
func ready(pod *v1.Pod) string {
	count := 0
	for _, c := range pod.Status.ContainerStatuses {
		if c.Ready {
			count++
		}
	}
	return fmt.Sprintf("%d/%d", count, len(pod.Spec.Containers))
}

// restarts returns the sum of the containers' restart counts.
func restarts(pod *v1.Pod) int {
	sum := 0
	for _, c := range pod.Status.ContainerStatuses {
		sum += int(c.RestartCount)
	}
	for _, c := range pod.Status.InitContainerStatuses {
		sum += int(c.RestartCount)
	}
	return sum
}

// age returns the time since the pod's start time.
func age(pod *v1.Pod, now time.Time) string {
	if pod.Status.StartTime == nil {
		return "-"
	}
	return max(0, now.Sub(pod.Status.StartTime.Time)).Truncate(time.Second).String()
}
