package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seedlet.dev/realworld/nodetest"
)

// testSeedsJob runs seeds of the simulator as a Job of four indices, and gathers what the pods have
// found. A run has the same hash in a pod as outside.
func (c *clusterSuite) testSeedsJob(t *testing.T) {
	binary, err := nodetest.BuildProgram(t.Context(), "seedsim")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "seedsim")
	if err := os.WriteFile(program, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	image, err := c.node.Registry().PublishProgram(t.Context(), "seedsim", binary)
	if err != nil {
		t.Fatal(err)
	}
	const seeds, scenario = "--seeds=11-20", "--scenario=steady"
	job := c.seedsim(t, program, "", "job", seeds, scenario, "--image="+image, "--completions=4",
		"--name=seeds", "--cpu=50m")
	c.apply(t, strings.Replace(job, "  name: seeds\n", "  name: seeds\n  namespace: town\n", 1))
	c.kubectl(t, "wait", "--for=condition=Complete", patience, "job/seeds")
	pods := c.kubectl(t, "get", "pods", "-l", "batch.kubernetes.io/job-name=seeds", "-o", "json")
	table := c.seedsim(t, program, pods, "job", "gather")
	for index, part := range []string{"11-13", "14-16", "17-18", "19-20"} {
		out := c.seedsim(t, program, "", "job", "part", seeds, scenario, "--of=4",
			fmt.Sprint("--index=", index))
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var result struct{ Seeds, Hash string }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if result.Seeds != part || !strings.Contains(table, " "+part+" ") ||
			!strings.Contains(table, " "+result.Hash+" ") {
			t.Errorf("index %d has seeds %s and hash %s outside of a pod:\n%s", index, result.Seeds,
				result.Hash, table)
		}
	}
	if !strings.Contains(table, "steady seeds 11-20: 10 of 10 seeds run, 4 of 4 indices done, "+
		"10 runs, 0 failures, hash ") {
		t.Errorf("gathered:\n%s", table)
	}
	c.kubectl(t, "delete", "job", "seeds", "--cascade=foreground", patience)
}

// seedsim runs a command of the simulator that must succeed, and returns its output.
func (c *clusterSuite) seedsim(t testing.TB, program, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("seedsim %s: %v\n%s%s", strings.Join(args, " "), err, problems.String(), out.String())
	}
	return out.String()
}
