package nodetest

// SharedDisk are lines of a KubeletConfiguration for a node on the disk of a machine that it shares
// with others: how full that is must neither end pods nor remove images.
const SharedDisk = `evictionHard:
  memory.available: 100Mi
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
  imagefs.available: "0%"
imageGCHighThresholdPercent: 100
`
