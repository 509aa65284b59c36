package runtime

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// Mountpoint returns where the images or the writable layers are, of the file systems that the
// runtime reports for them; empty if it reports none. Of several the first counts, as in the
// kubelet (pkg/kubelet/stats/cri_stats_provider.go).
func Mountpoint(all []*runtimeapi.FilesystemUsage) string {
	if len(all) == 0 {
		return ""
	}
	return all[0].GetFsId().GetMountpoint()
}
