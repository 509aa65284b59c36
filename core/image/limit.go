package image

import (
	"slices"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Limits are how many pulls there may be, of all images.
type Limits struct {
	ParallelMax int           `json:"parallelMax"` // at once; zero: no limit
	Every       time.Duration `json:"every"`       // one more in that time, on average; zero: no limit
	Burst       int           `json:"burst"`       // so many at once after a quiet time
}

// LimitsOf are the limits of a configuration with defaults: serializeImagePulls,
// maxParallelImagePulls, registryPullQPS and registryBurst.
func LimitsOf(c *kubeletconfig.KubeletConfiguration) Limits {
	limits := Limits{Burst: int(c.RegistryBurst)}
	switch {
	case c.SerializeImagePulls == nil || *c.SerializeImagePulls:
		limits.ParallelMax = 1
	case c.MaxParallelImagePulls != nil:
		limits.ParallelMax = int(*c.MaxParallelImagePulls)
	}
	if qps := c.RegistryPullQPS; qps != nil && *qps > 0 {
		limits.Every = time.Second / time.Duration(*qps)
		limits.Burst = max(limits.Burst, 1)
	}
	return limits
}

// Turns says which pull may begin: first come, first served. What has to wait is no failure, as
// it is with the kubelet: nobody backs off for it.
type Turns struct {
	Waiting []string  `json:"waiting,omitempty"` // references, in the order of their turns
	Flying  int       `json:"flying"`            // pulls
	Spent   time.Time `json:"spent"`             // until then the allowance is used up, less Burst
}

// take reports whether it is a reference's turn to be pulled, and takes it if so. If it is a
// matter of time, that is when to ask again; if it is one of other pulls, they will be asked for
// the next turn when they end.
func (t *Turns) take(ref string, limits Limits, now time.Time) (bool, time.Time) {
	if !slices.Contains(t.Waiting, ref) {
		t.Waiting = append(t.Waiting, ref)
	}
	if t.Waiting[0] != ref || limits.ParallelMax > 0 && t.Flying >= limits.ParallelMax {
		return false, time.Time{}
	}
	if limits.Every > 0 {
		due := t.Spent.Add(-limits.Every * time.Duration(limits.Burst-1))
		if now.Before(due) {
			return false, due
		}
		if t.Spent.Before(now) {
			t.Spent = now
		}
		t.Spent = t.Spent.Add(limits.Every)
	}
	t.Waiting = t.Waiting[1:]
	t.Flying++
	return true, time.Time{}
}

// leave gives up the place of a reference that nobody wants pulled any more.
func (t *Turns) leave(ref string) {
	t.Waiting = slices.DeleteFunc(t.Waiting, func(w string) bool { return w == ref })
}

// next is the reference whose turn comes next; empty if none waits.
func (t *Turns) next() string {
	if len(t.Waiting) == 0 {
		return ""
	}
	return t.Waiting[0]
}
