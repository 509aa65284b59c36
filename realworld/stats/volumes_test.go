package stats

import (
	"context"
	"errors"
	"testing"
	"time"

	"seedlet.dev/world"
)

// The volumes that the agent has measured are those of their pods, with their claims.
func TestSummaryVolumesWithClaims(t *testing.T) {
	var failure error
	b := busy(t, func(o *Options) {
		o.Volumes = func(context.Context) ([]world.VolumeUsage, error) {
			return []world.VolumeUsage{
				{UID: "u-1", Namespace: "ns", Volume: "data", Claim: "claim", MeasuredAt: noon,
					Stats: world.CSIVolumeStats{CapacityBytes: 10, UsedBytes: 4, AvailableBytes: 6,
						Condition: &world.CSIVolumeCondition{Abnormal: true}}},
				{UID: "u-1", Volume: "inline", MeasuredAt: noon},
				{UID: "other", Volume: "data", MeasuredAt: noon}}, failure
		}
	})
	volumes := summaryOf(t, b, "").Pods[0].VolumeStats
	if len(volumes) != 2 {
		t.Fatalf("volumes %+v, want those of the pod", volumes)
	}
	v := volumes[0]
	if v.Name != "data" || v.PVCRef == nil || v.PVCRef.Namespace != "ns" || v.PVCRef.Name != "claim" ||
		*v.CapacityBytes != 10 || *v.UsedBytes != 4 || *v.AvailableBytes != 6 || *v.Inodes != 0 ||
		!v.VolumeHealthStats.Abnormal || !v.Time.Time.Equal(noon) {
		t.Errorf("volume %+v", v)
	}
	if volumes[1].PVCRef != nil || volumes[1].VolumeHealthStats != nil {
		t.Errorf("a volume without a claim: %+v", volumes[1])
	}
	b.pass(time.Minute)
	failure = errors.New("the core does not answer")
	if volumes := summaryOf(t, b, "").Pods[0].VolumeStats; len(volumes) != 0 {
		t.Errorf("volumes %+v without an answer", volumes)
	}
}
