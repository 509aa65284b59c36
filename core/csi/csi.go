// Package csi is the node's side of the volumes of CSI drivers: which drivers the node tells the
// cluster about, and what is staged and published on the node.
//
// Its parts have a key and a plan each, so that a change is as much work as what has changed:
//
//   - A driver (driver.go): a plugin that registers is asked for its node, and the plugin is told
//     that it is registered when the cluster knows it.
//   - The CSINode (csinode.go): the object of the API server that names the drivers of the node.
//   - A volume (volume.go): one record for each pair of driver and handle, whatever number of pods
//     share it.
//   - The search (search.go): what earlier agents left on the disk and in the mount table.
//
// Facts of a volume: its uses, which pods declare (Node.Use) and take back (Node.Release); its
// staging; its publications, one for each pod; what the API server says of its attachment; and the
// one operation in flight. Uses are what is desired, staging and publications are what is, or may
// be, on the node. Plan (plan.go), each part only when the one before is done:
//
//  1. Nothing is done for a volume before the search has looked at everything once.
//  2. A publication that no use desires is unpublished (release.go), and its directory removed. A
//     pod waits for that before its own directory goes.
//  3. A volume with uses is attached (attach.go): the Node says durably that the volume is in use,
//     then the cluster says that it is attached. It is staged (stage.go), then published for each
//     use (publish.go). The file vol_data.json is durable before the call that it describes.
//  4. A volume without uses and publications is unstaged, and its directory removed.
//
// A state is uncertain from the moment a call is issued until it has succeeded: whatever happens
// to the call or to the agent, it is repeated or undone. So a volume is one call at a time, and
// all calls are idempotent by the CSI specification.
//
// After a start of the agent a publication that is found mounted, and whose pod has containers,
// stays as it is without a call: the pod got its containers after its volumes. Nothing that was
// found is undone before all sources of pods and one complete relist are known. The directories,
// the names and the keys of vol_data.json are those of a kubelet, so each takes over the other's
// volumes.
//
// Upstream: pkg/volume/csi, pkg/volume/csi/nodeinfomanager, pkg/kubelet/volumemanager. Start reading
// at Node, then Node.planVolume.
package csi
