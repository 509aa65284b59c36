package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func ended(code int32, reason string) v1.ContainerState {
	return v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

func runs() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{}}
}

// podWith returns a pod of one init and one app container.
func podWith(name string, phase v1.PodPhase, setup, app v1.ContainerState, restarts int32) v1.Pod {
	p := v1.Pod{}
	p.Name = name + "-playground"
	p.Spec.InitContainers = make([]v1.Container, 1)
	p.Spec.Containers = make([]v1.Container, 1)
	p.Status.Phase = phase
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{State: setup}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{State: app, Ready: app.Running != nil, RestartCount: restarts}}
	return p
}

func TestStatus(t *testing.T) {
	done := ended(0, "Completed")
	for _, c := range []struct {
		phase      v1.PodPhase
		setup, app v1.ContainerState
		want       string
	}{
		{v1.PodPending, runs(), waiting("PodInitializing"), "Init:0/1"},
		{v1.PodPending, waiting("PodInitializing"), waiting("PodInitializing"), "Init:0/1"},
		{v1.PodPending, waiting("ErrImagePull"), waiting("PodInitializing"), "Init:ErrImagePull"},
		{v1.PodPending, ended(1, "Error"), waiting("PodInitializing"), "Init:Error"},
		{v1.PodPending, done, waiting("ContainerCreating"), "ContainerCreating"},
		{v1.PodRunning, done, runs(), "Running"},
		{v1.PodRunning, done, waiting("CrashLoopBackOff"), "CrashLoopBackOff"},
		{v1.PodSucceeded, done, done, "Completed"},
		{v1.PodFailed, done, ended(1, "Error"), "Error"},
	} {
		pod := podWith("web", c.phase, c.setup, c.app, 0)
		if got := podStatus(&pod); got != c.want {
			t.Errorf("status of %s, %v, %v = %q, want %q", c.phase, c.setup, c.app, got, c.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	done := ended(0, "Completed")
	v := newVerdict()
	for _, judge := range []func() error{v.web, v.crasher, v.job} {
		if err := judge(); err == nil || !strings.Contains(err.Error(), "never seen") {
			t.Errorf("before any pod: %v, want never seen", err)
		}
	}
	v.observe([]v1.Pod{
		podWith("web", v1.PodPending, runs(), waiting("PodInitializing"), 0),
		podWith("crasher", v1.PodRunning, done, runs(), 0),
		podWith("job", v1.PodRunning, done, runs(), 0),
	})
	for _, judge := range []func() error{v.web, v.crasher, v.job} {
		if judge() == nil {
			t.Error("pods that have just begun are judged good")
		}
	}
	v.observe([]v1.Pod{
		podWith("web", v1.PodRunning, done, runs(), 0),
		podWith("crasher", v1.PodRunning, done, waiting("CrashLoopBackOff"), 1),
		podWith("job", v1.PodSucceeded, done, done, 0),
	})
	v.observe([]v1.Pod{podWith("crasher", v1.PodRunning, done, runs(), 2)})
	for _, judge := range []func() error{v.web, v.crasher, v.job} {
		if err := judge(); err != nil {
			t.Errorf("pods in their expected states: %v", err)
		}
	}
}

func TestScreenPrintsChangesOnly(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, printed: map[string]string{}}
	web := podWith("web", v1.PodRunning, ended(0, "Completed"), runs(), 0)
	for range 3 {
		s.draw([]v1.Pod{web}, s.start.Add(time.Second))
	}
	web.Status.ContainerStatuses[0].RestartCount = 1
	s.draw([]v1.Pod{web}, s.start.Add(2*time.Second))
	if lines := strings.Count(out.String(), "\n"); lines != 2 {
		t.Errorf("%d lines for two states:\n%s", lines, &out)
	}
}

func TestScreenRedrawsInPlace(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, terminal: true}
	web := podWith("web", v1.PodRunning, ended(0, "Completed"), runs(), 0)
	s.draw([]v1.Pod{web}, s.start)
	first := strings.Count(out.String(), "\n")
	out.Reset()
	s.draw([]v1.Pod{web}, s.start)
	if want := "\x1b[3A\x1b[J"; first != 3 || !strings.HasPrefix(out.String(), want) {
		t.Errorf("after %d lines the table begins with %q, want %q", first, out.String()[:8], want)
	}
}
