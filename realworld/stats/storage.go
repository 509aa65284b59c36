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

// storageSample is one measurement of the node's file systems. It is immutable.
type storageSample struct {
	node       *statsapi.FsStats // the file system of the agent's root directory
	images     *statsapi.FsStats
	containers *statsapi.FsStats // of writable layers; with most runtimes the same as images
	err        error
}

func (s *Source) measureStorage(ctx context.Context) *storageSample {
	found := &storageSample{}
	node := statsapi.FsStats{Time: metav1.NewTime(s.opts.Now())}
	if stat, err := s.addFileSystem(&node, s.opts.RootDir); err != nil {
		found.err = fmt.Errorf("looking at the node's file system: %w", err)
	} else {
		used := (stat.Blocks - stat.Bfree) * uint64(stat.Bsize)
		inodes := stat.Files - stat.Ffree
		node.UsedBytes, node.InodesUsed = &used, &inodes
		found.node = &node
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.RuntimeTimeout)
	defer cancel()
	reported, err := s.opts.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		found.err = errors.Join(found.err,
			fmt.Errorf("asking the runtime for its file systems: %w", err))
		return found
	}
	found.images = s.fileSystemOf(reported.GetImageFilesystems())
	found.containers = s.fileSystemOf(reported.GetContainerFilesystems())
	if found.containers == nil {
		found.containers = found.images
	}
	return found
}

// fileSystemOf returns the first file system that the runtime reports; nil if there is none.
func (s *Source) fileSystemOf(reported []*runtimeapi.FilesystemUsage) *statsapi.FsStats {
	if len(reported) == 0 {
		return nil
	}
	l := sampler{at: s.opts.Now()}
	stats := &statsapi.FsStats{Time: l.sampleTime(reported[0].GetTimestamp()),
		UsedBytes: value(reported[0].GetUsedBytes()), InodesUsed: value(reported[0].GetInodesUsed())}
	// The path of a runtime in another mount namespace may not exist here. Then only its usage is
	// known.
	_, _ = s.addFileSystem(stats, reported[0].GetFsId().GetMountpoint())
	return stats
}

// addFileSystem adds the capacity and free space of the file system that holds a path.
func (s *Source) addFileSystem(to *statsapi.FsStats, path string) (unix.Statfs_t, error) {
	stat, err := s.statfs.get(path, statfsTimeout)
	if err != nil {
		return stat, err
	}
	capacity, available := stat.Blocks*uint64(stat.Bsize), stat.Bavail*uint64(stat.Bsize)
	to.CapacityBytes, to.AvailableBytes = &capacity, &available
	to.Inodes, to.InodesFree = &stat.Files, &stat.Ffree
	return stat, nil
}

// addStatfs adds the capacity and free space of a file system.
func addStatfs(stats statsapi.FsStats, fs *statsapi.FsStats) *statsapi.FsStats {
	if fs != nil {
		stats.CapacityBytes, stats.AvailableBytes = fs.CapacityBytes, fs.AvailableBytes
		stats.Inodes, stats.InodesFree = fs.Inodes, fs.InodesFree
	}
	return &stats
}
