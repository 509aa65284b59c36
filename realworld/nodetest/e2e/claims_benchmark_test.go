package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/csi/loopcsi"
)

const benchmarkClaims = 30

// BenchmarkThirtyClaims measures the start and the end of thirty pods, each with a claim of its own
// on a volume of a CSI driver, as BenchmarkPace does. The plain loop has the driver stage
// and publish the same volumes, and the runtime mount them.
func BenchmarkThirtyClaims(b *testing.B) {
	c := newClaimsBenchmark(b)
	c.timePlain(b) // the driver makes the file systems
	comparePaces(b, func() pace { return c.timePlain(b) }, func() pace {
		return c.timeAgent(b, c.pods())
	})
	c.waitReleased(b)
	c.driver.Stop()
	c.checkNothingLeft(b)
	c.agent.signalAndWait(b, syscall.SIGTERM)
}

// claimsBenchmark is a cluster whose node has a CSI driver, with volumes of bound claims.
type claimsBenchmark struct {
	*csiSuite
	calls   csi.NodeClient // to the driver
	handles []string       // of the volumes
}

func newClaimsBenchmark(b *testing.B) *claimsBenchmark {
	b.Helper()
	c := &claimsBenchmark{csiSuite: &csiSuite{clusterSuite: newBenchmarkCluster(b)}}
	c.driver = newCSIDriver(b, c.agent, loopcsi.Name)
	c.createDriverObject(b, loopcsi.Name, false)
	c.driver.start(b)
	conn := c.driver.dial(b)
	b.Cleanup(func() { _ = conn.Close() }) // after the last call
	c.calls = csi.NewNodeClient(conn)
	for i := range benchmarkClaims {
		name := claimName(i)
		c.handles = append(c.handles, c.driver.makeVolume(b, name))
		c.createBoundClaim(b, name, c.handles[i])
	}
	return c
}

func claimName(i int) string { return fmt.Sprintf("pace-%d", i) }

// createBoundClaim creates a persistent volume and a claim that is bound to it. No controller runs
// that would bind them.
func (c *claimsBenchmark) createBoundClaim(b *testing.B, name, handle string) {
	b.Helper()
	c.createClaimOn(b, name, v1.ReadWriteOnce, v1.PersistentVolumeSource{
		CSI: &v1.CSIPersistentVolumeSource{Driver: loopcsi.Name, VolumeHandle: handle, FSType: "ext4"}})
	claims, volumes := c.api.CoreV1().PersistentVolumeClaims(testNamespace),
		c.api.CoreV1().PersistentVolumes()
	claim, err := claims.Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	volume, err := volumes.Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	volume.Spec.ClaimRef.UID = claim.UID
	if _, err := volumes.Update(b.Context(), volume, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound,
		AccessModes: claim.Spec.AccessModes, Capacity: volume.Spec.Capacity}
	if _, err := claims.UpdateStatus(b.Context(), claim, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// pods returns a pod for each claim.
func (c *claimsBenchmark) pods() []*v1.Pod {
	pods := make([]*v1.Pod, benchmarkClaims)
	for i := range pods {
		pods[i] = c.benchmarkPod(i)
		addVolume(pods[i], "disk", v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(i)}})
	}
	return pods
}

// timePlain starts the same containers with the same volumes without the agent, and removes them.
func (c *claimsBenchmark) timePlain(b *testing.B) pace {
	b.Helper()
	dir, logs := b.TempDir(), b.TempDir()
	return c.timeWithoutAgent(b, func() error {
		return forEach(benchmarkClaims, func(i int) error {
			path, err := c.mount(b.Context(), dir, i)
			if err != nil {
				return err
			}
			return c.startPlainPod(b.Context(), logs, fmt.Sprintf("plain-%d", i),
				&runtimeapi.Mount{ContainerPath: "/disk", HostPath: path})
		})
	}, func() error {
		if err := c.endPlainPods(b.Context(), benchmarkClaims); err != nil {
			return err
		}
		return forEach(benchmarkClaims, func(i int) error { return c.unmount(b.Context(), dir, i) })
	})
}

// pathsOf returns where a volume of the plain loop is staged and published.
func pathsOf(dir string, i int) (staging, target string) {
	at := filepath.Join(dir, claimName(i))
	return at + "-staged", at
}

// mount has the driver stage and publish a volume, and returns where.
func (c *claimsBenchmark) mount(ctx context.Context, dir string, i int) (string, error) {
	staging, target := pathsOf(dir, i)
	if err := os.Mkdir(staging, 0o750); err != nil {
		return "", err
	}
	ext4 := fileSystemOf("ext4")
	_, err := c.calls.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: c.handles[i],
		StagingTargetPath: staging, VolumeCapability: ext4})
	if err == nil {
		_, err = c.calls.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId: c.handles[i], StagingTargetPath: staging, TargetPath: target,
			VolumeCapability: ext4})
	}
	return target, err
}

// unmount has the driver unpublish and unstage a volume.
func (c *claimsBenchmark) unmount(ctx context.Context, dir string, i int) error {
	staging, target := pathsOf(dir, i)
	_, err := c.calls.NodeUnpublishVolume(ctx,
		&csi.NodeUnpublishVolumeRequest{VolumeId: c.handles[i], TargetPath: target})
	if err == nil {
		_, err = c.calls.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
			VolumeId: c.handles[i], StagingTargetPath: staging})
	}
	return err
}
