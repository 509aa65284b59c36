package stats

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// storage is one look at the file systems of the node. Nobody changes it.
type storage struct {
	node       *statsapi.FsStats // that of the agent's own directory
	images     *statsapi.FsStats
	containers *statsapi.FsStats // their writable layers; the same as that of images with most
	err        error
}

func (s *Source) measureStorage(ctx context.Context) *storage {
	found := &storage{}
	node := statsapi.FsStats{Time: metav1.NewTime(s.opts.Now())}
	if stat, err := addFileSystem(&node, s.opts.RootDir); err != nil {
		found.err = fmt.Errorf("looking at the node's file system: %w", err)
	} else {
		used := (stat.Blocks - stat.Bfree) * uint64(stat.Bsize)
		inodes := stat.Files - stat.Ffree
		node.UsedBytes, node.InodesUsed = &used, &inodes
		found.node = &node
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.RuntimeMax)
	defer cancel()
	told, err := s.opts.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		found.err = errors.Join(found.err,
			fmt.Errorf("asking the runtime for its file systems: %w", err))
		return found
	}
	found.images = s.fileSystemOf(told.GetImageFilesystems())
	found.containers = s.fileSystemOf(told.GetContainerFilesystems())
	if found.containers == nil {
		found.containers = found.images
	}
	return found
}

// fileSystemOf is the first of those that the runtime tells of; nil if there is none.
func (s *Source) fileSystemOf(told []*runtimeapi.FilesystemUsage) *statsapi.FsStats {
	if len(told) == 0 {
		return nil
	}
	l := look{at: s.opts.Now()}
	stats := &statsapi.FsStats{Time: l.time(told[0].GetTimestamp()),
		UsedBytes: value(told[0].GetUsedBytes()), InodesUsed: value(told[0].GetInodesUsed())}
	// A runtime elsewhere has its own name for it; then only what is used is known.
	_, _ = addFileSystem(stats, told[0].GetFsId().GetMountpoint())
	return stats
}

// addFileSystem adds what there is and what is free on the file system of a path.
func addFileSystem(to *statsapi.FsStats, path string) (unix.Statfs_t, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return stat, fmt.Errorf("statfs %s: %w", path, err)
	}
	capacity, available := stat.Blocks*uint64(stat.Bsize), stat.Bavail*uint64(stat.Bsize)
	to.CapacityBytes, to.AvailableBytes = &capacity, &available
	to.Inodes, to.InodesFree = &stat.Files, &stat.Ffree
	return stat, nil
}

// on adds what there is and what is free on a file system that has been looked at.
func on(stats statsapi.FsStats, fs *statsapi.FsStats) *statsapi.FsStats {
	if fs != nil {
		stats.CapacityBytes, stats.AvailableBytes = fs.CapacityBytes, fs.AvailableBytes
		stats.Inodes, stats.InodesFree = fs.Inodes, fs.InodesFree
	}
	return &stats
}
