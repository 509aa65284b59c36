package cgroup

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

func TestQuotaPeriod(t *testing.T) {
	for _, test := range []struct {
		policy        Policy
		milli         int64
		quota, period int64
	}{
		{Policy{QuotaPeriod: 10 * time.Millisecond}, 500, 5000, 10_000},
		{Policy{QuotaPeriod: 10 * time.Millisecond}, 10, 1000, 10_000},
		{Policy{QuotaPeriod: 10 * time.Millisecond}, 0, 0, 10_000},
		{Policy{QuotaPeriod: time.Second}, 500, 500_000, 1_000_000},
		{Policy{QuotaPeriod: time.Second, NoQuota: true}, 500, 0, 0},
	} {
		if quota, period := test.policy.Quota(test.milli); quota != test.quota || period != test.period {
			t.Errorf("%+v, %dm: %d of %d", test.policy, test.milli, quota, period)
		}
	}
}

// The cgroup of a pod has the period of the configuration, and no quota if quotas are off.
func TestLimitsWithoutQuota(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("500m 1Mi 1 1Mi")}}}
	for _, on := range []bool{true, false} {
		l := LayoutFromConfig(&kubeletconfig.KubeletConfiguration{CPUCFSQuota: &on,
			CPUCFSQuotaPeriod: &metav1.Duration{Duration: 20 * time.Millisecond}})
		want := world.SetCgroup{Path: "p", CPUShares: 512, MemoryBytes: 1 << 20}
		if on {
			want.CPUQuota, want.CPUPeriod = 20_000, 20_000
		}
		if got := l.Limits(pod, v1.PodQOSBurstable, "p"); !got.Equal(&want) {
			t.Errorf("quotas %v: %+v", on, got)
		}
	}
}

// The memory that a pod requests is protected by TieredReservation, in cgroup v2 alone.
func TestReservedMemoryOfPods(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		container("- 1Mi - 4Mi"), container("- 2Mi - 4Mi")}}}
	policy := Policy{MemoryQoS: true, ReserveMemory: true, Unified: true}
	for _, test := range []struct {
		change   func(*Policy)
		class    v1.PodQOSClass
		min, low int64
	}{
		{func(*Policy) {}, v1.PodQOSGuaranteed, 3 << 20, 0},
		{func(*Policy) {}, v1.PodQOSBurstable, 0, 3 << 20},
		{func(*Policy) {}, v1.PodQOSBestEffort, 0, 0},
		{func(p *Policy) { p.Unified = false }, v1.PodQOSGuaranteed, 0, 0},
		{func(p *Policy) { p.ReserveMemory = false }, v1.PodQOSBurstable, 0, 0},
		{func(p *Policy) { p.MemoryQoS = false }, v1.PodQOSGuaranteed, 0, 0},
	} {
		l := Layout{Policy: policy}
		test.change(&l.Policy)
		got := l.Limits(pod, test.class, "p")
		if got.MemoryMin != test.min || got.MemoryLow != test.low {
			t.Errorf("%+v, %s: %+v", l.Policy, test.class, got)
		}
	}
}
