package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

func jobGatherCommand() *cobra.Command {
	return &cobra.Command{
		Use: "gather [FILE]",
		Short: "Print what the pods of a Job have found, given " +
			"kubectl get pods -l batch.kubernetes.io/job-name=NAME -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("gather takes one file, or none for the standard input, has %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			name, data, err := "standard input", []byte(nil), error(nil)
			if len(args) == 0 || args[0] == "-" {
				data, err = io.ReadAll(c.InOrStdin())
			} else {
				name = args[0]
				data, err = os.ReadFile(name)
			}
			if err != nil {
				return err
			}
			g, err := gatherPods(data)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return g.print(c.OutOrStdout())
		},
	}
}

// gathering is what is known of a Job by its pods.
type gathering struct {
	scenario string
	all      seeds
	parts    []jobPart // by index
}

// jobPart is what is known of an index.
type jobPart struct {
	seeds  seeds
	result *jobResult // nil: not known
	state  string     // of the index without a result
	pod    string     // with the result, or the last one without
}

// gatherPods reads a list of pods. All have to be of one Job.
func gatherPods(data []byte) (*gathering, error) {
	var list v1.PodList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("no list of pods in JSON: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no pods; want the output of kubectl get pods -o json")
	}
	g, job := &gathering{}, ""
	for i := range list.Items {
		p := &list.Items[i]
		if of := p.Labels[batchv1.JobNameLabel]; i > 0 && of != job {
			return nil, fmt.Errorf("pod %s is of Job %q and others are of %q: want -l %s=NAME", p.Name,
				of, job, batchv1.JobNameLabel)
		} else if i == 0 {
			job = of
		}
		if err := g.add(p); err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
	}
	return g, nil
}

// add adds what a pod says. The result of an index does not depend on which pod has run it.
func (g *gathering) add(p *v1.Pod) error {
	if g.parts == nil {
		if err := g.readArguments(p); err != nil {
			return err
		}
	}
	text := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil || index >= uint64(len(g.parts)) {
		return fmt.Errorf("annotation %s: want 0 to %d, have %q", batchv1.JobCompletionIndexAnnotation,
			len(g.parts)-1, text)
	}
	part := &g.parts[index]
	var s v1.ContainerStatus
	for _, status := range p.Status.ContainerStatuses {
		if status.Name == jobContainer {
			s = status
		}
	}
	result := resultOf(s)
	if result != nil && (result.Index != index || result.Seeds != part.seeds.String()) {
		return fmt.Errorf("its result is of index %d with seeds %s, want index %d with %s",
			result.Index, result.Seeds, index, part.seeds)
	}
	if result != nil && part.result != nil && result.Hash != part.result.Hash {
		return fmt.Errorf("index %d has hash %s, and %s by pod %s: the runs are not deterministic",
			index, result.Hash, part.result.Hash, part.pod)
	}
	if result != nil || part.result == nil {
		part.result, part.pod, part.state = result, p.Name, stateOf(p, s)
	}
	return nil
}

// readArguments reads the range and the number of indices from the command line of a pod.
func (g *gathering) readArguments(p *v1.Pod) error {
	i := slices.IndexFunc(p.Spec.Containers, func(c v1.Container) bool {
		return c.Name == jobContainer
	})
	if i < 0 {
		return fmt.Errorf("no container is called %s: not a pod of seedsim job", jobContainer)
	}
	values := map[string]string{}
	for _, arg := range p.Spec.Containers[i].Args {
		if flag, value, ok := strings.Cut(arg, "="); ok {
			values[flag] = value
		}
	}
	all, err := parseAnySeeds(values["--seeds"])
	if err != nil {
		return err
	}
	of, err := strconv.ParseUint(values["--of"], 10, 64)
	if err != nil || of < 1 || of > min(jobPartsMax, all.length()) {
		return fmt.Errorf("--of %q: want 1 to %d, one for each seed", values["--of"],
			min(jobPartsMax, all.length()))
	}
	g.scenario, g.all = values["--scenario"], all
	for i := range of {
		g.parts = append(g.parts, jobPart{seeds: all.part(i, of), state: "missing: it has no pod"})
	}
	return nil
}

// resultOf returns the result in the termination message of a container; nil if it has none.
func resultOf(s v1.ContainerStatus) *jobResult {
	if s.State.Terminated == nil {
		return nil
	}
	r := &jobResult{}
	if json.Unmarshal([]byte(s.State.Terminated.Message), r) != nil || r.Hash == "" {
		return nil
	}
	return r
}

// stateOf says how far a pod without a result is.
func stateOf(p *v1.Pod, s v1.ContainerStatus) string {
	end := s.State.Terminated
	switch {
	case end != nil:
		return fmt.Sprintf("failed: %s, exit code %d", end.Reason, end.ExitCode)
	case p.Status.Phase == v1.PodFailed:
		return "failed: " + p.Status.Reason
	case s.State.Waiting != nil:
		return "missing: waiting, " + s.State.Waiting.Reason
	}
	return "missing: " + strings.ToLower(string(p.Status.Phase))
}

// print prints the table, then the failures. It fails if a run has failed or an index is missing.
func (g *gathering) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INDEX\tSEEDS\tRUNS\tFAILURES\tHASH\tPOD")
	var runs, failures, seedsRun, done uint64
	hash := newJobHash()
	for i := range g.parts {
		part := &g.parts[i]
		r := part.result
		if r == nil {
			fmt.Fprintf(table, "%d\t%s\t\t\t%s\t%s\n", i, part.seeds, part.state, part.pod)
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%d\t%d\t%s\t%s\n", i, part.seeds, r.Runs, r.Failures, r.Hash,
			part.pod)
		done++
		seedsRun += part.seeds.length()
		runs += r.Runs
		failures += r.Failures
		hash.add(r.Hash)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i := range g.parts {
		g.parts[i].printFailures(w)
	}
	fmt.Fprintf(w, "%s seeds %s: %d of %d seeds run, %d of %d indices done, %d runs, %d failures",
		g.scenario, g.all, seedsRun, g.all.length(), done, len(g.parts), runs, failures)
	if int(done) < len(g.parts) {
		fmt.Fprintln(w)
		return errFailed
	}
	fmt.Fprintf(w, ", hash %s\n", hash)
	if failures > 0 {
		return errFailed
	}
	return nil
}

// printFailures prints the failures of an index, each with the command that repeats it.
func (p *jobPart) printFailures(w io.Writer) {
	if p.result == nil {
		return
	}
	for _, f := range p.result.First {
		fmt.Fprintf(w, "FAIL %s seed %d: %s\n     seedsim replay %s --seed %d --log\n", f.Scenario,
			f.Seed, f.Oracle, f.Scenario, f.Seed)
	}
	if more := p.result.Failures - uint64(len(p.result.First)); more > 0 {
		fmt.Fprintf(w, "     and %d more: kubectl logs %s\n", more, p.pod)
	}
}

// jobHash is the hash of hashes, in their order.
type jobHash struct{ *xxhash.Digest }

func newJobHash() jobHash { return jobHash{xxhash.New()} }

func (h jobHash) add(text string) { _, _ = h.WriteString(text) } // it never fails

func (h jobHash) String() string { return fmt.Sprintf("%016x", h.Sum64()) }
