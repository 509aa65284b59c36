// Package sanity runs csi-sanity, the conformance suite of CSI drivers, against the project's
// driver loopcsi as a process. It is a module of its own, so that the suite and its test framework
// are no dependencies of the agent.
package sanity

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csisanity "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// startMax is how long the driver may take to serve, on a busy machine.
const startMax = time.Minute

// passedMin is how many specs must pass for each access type, so that a driver that announces
// nothing, and so skips all, fails.
const passedMin = 70

// volumeSize is the size of the suite's volumes. Their images are sparse.
const volumeSize = 64 << 20

func TestSanity(t *testing.T) {
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("loop devices need root, and not -short")
	}
	for _, program := range []string{"losetup", "mkfs.ext4"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: run `make test`", program)
		}
	}
	endpoint := startDriver(t)
	reports := map[string]*counts{}
	for _, accessType := range []string{"mount", "block"} {
		config := csisanity.NewTestConfig()
		config.Address = "unix:" + endpoint
		config.TargetPath = filepath.Join(t.TempDir(), "target")
		config.StagingPath = filepath.Join(t.TempDir(), "staging")
		config.TestVolumeAccessType = accessType
		config.TestVolumeSize = volumeSize
		config.TestVolumeExpandSize = 2 * volumeSize
		config.TestNodeVolumeAttachLimit = true
		ginkgo.Describe(accessType, func() { csisanity.GinkgoTest(&config) })
		reports[accessType] = &counts{}
	}
	ginkgo.ReportAfterEach(func(spec ginkgo.SpecReport) {
		if accessType := spec.ContainerHierarchyTexts; len(accessType) > 0 {
			reports[accessType[0]].add(spec)
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "csi-sanity")
	for accessType, c := range reports {
		fmt.Printf("csi-sanity of %s volumes: %d passed, %d failed, %d skipped, %d pending\n%s",
			accessType, c.passed, c.failed, c.skipped, c.pending, c.reasons.String())
		if c.passed < passedMin {
			t.Errorf("%d specs of %s volumes passed, want at least %d", c.passed, accessType, passedMin)
		}
	}
}

// counts are the results of specs.
type counts struct {
	passed, failed, skipped, pending int
	reasons                          strings.Builder // a line for each that was skipped
}

func (c *counts) add(spec ginkgo.SpecReport) {
	switch spec.State {
	case types.SpecStatePassed:
		c.passed++
	case types.SpecStatePending:
		c.pending++
	case types.SpecStateSkipped:
		c.skipped++
		fmt.Fprintf(&c.reasons, "  skipped: %s: %s\n", spec.FullText(), spec.Failure.Message)
	default:
		c.failed++
	}
}

// startDriver builds and starts a driver, and returns the path of its socket. The driver ends with
// this process, and removes what is mounted then.
func startDriver(t *testing.T) (endpoint string) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "loopcsi")
	build := exec.Command("go", "build", "-o", binary, "./cmd/loopcsi")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the driver: %v\n%s", err, out)
	}
	endpoint = filepath.Join(dir, "csi.sock")
	driver := exec.Command(binary, "--dir", filepath.Join(dir, "data"), "--endpoint", endpoint,
		"--node-id", "node-1", "--zone", "zone-1", "--volumes-max", "4", "--attach", "--temporary")
	var log strings.Builder
	driver.Stdout, driver.Stderr = &log, &log
	alive, err := driver.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopDriver(t, driver, alive, &log) })
	for late := time.Now().Add(startMax); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", endpoint); err == nil {
			_ = conn.Close() // it serves
			return endpoint
		}
		if time.Now().After(late) {
			t.Fatalf("the driver does not serve after %v", startMax)
		}
	}
}

func stopDriver(t *testing.T, driver *exec.Cmd, alive io.Closer, log *strings.Builder) {
	t.Helper()
	if err := alive.Close(); err != nil {
		t.Error(err)
	}
	if err := driver.Wait(); err != nil {
		t.Errorf("the driver: %v", err)
	}
	if t.Failed() {
		t.Logf("the driver's log:\n%s", log)
	}
}
