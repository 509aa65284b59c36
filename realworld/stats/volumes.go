package stats

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"seedlet.dev/world"
)

// backedVolumes returns the usage of the volumes that storage backs, by the UID of their pods. The
// agent measures them. If it does not answer, the summary is without them.
func (s *Source) backedVolumes(ctx context.Context) map[types.UID][]statsapi.VolumeStats {
	if s.opts.Volumes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	found, err := s.opts.Volumes(ctx)
	if err != nil {
		return nil
	}
	all := map[types.UID][]statsapi.VolumeStats{}
	for i := range found {
		uid := types.UID(found[i].UID)
		all[uid] = append(all[uid], volumeStats(&found[i]))
	}
	return all
}

// volumeStats converts the usage of a volume. As with a kubelet, an unknown number is zero.
func volumeStats(u *world.VolumeUsage) statsapi.VolumeStats {
	number := func(n int64) *uint64 {
		positive := uint64(max(0, n))
		return &positive
	}
	v := statsapi.VolumeStats{Name: u.Volume, FsStats: statsapi.FsStats{
		Time: metav1.NewTime(u.MeasuredAt), AvailableBytes: number(u.Stats.AvailableBytes),
		CapacityBytes: number(u.Stats.CapacityBytes), UsedBytes: number(u.Stats.UsedBytes),
		Inodes: number(u.Stats.Inodes), InodesFree: number(u.Stats.InodesFree),
		InodesUsed: number(u.Stats.InodesUsed)}}
	if u.Claim != "" {
		v.PVCRef = &statsapi.PVCReference{Namespace: u.Namespace, Name: u.Claim}
	}
	if c := u.Stats.Condition; c != nil {
		v.VolumeHealthStats = &statsapi.VolumeHealthStats{Abnormal: c.Abnormal}
	}
	return v
}
