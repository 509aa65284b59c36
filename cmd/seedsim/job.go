package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const (
	// jobContainer is the name of the container of each pod.
	jobContainer = "seedsim"
	// jobPartsMax bounds the indices. The API server allows 100,000 of them with limits per index.
	jobPartsMax = 10_000
	// jobRetries is how often an index is repeated whose pod was lost or killed.
	jobRetries = 3
	// jobUser is a user that owns no files.
	jobUser = 65534
	// indexVariable is set by the Job controller.
	indexVariable = "JOB_COMPLETION_INDEX"
)

// jobOptions are the flags of the command job.
type jobOptions struct {
	name, image, scenario, cpu string
	seeds                      string
	completions, parallelism   int
}

func jobCommand() *cobra.Command {
	var o jobOptions
	c := &cobra.Command{
		Use:   "job --seeds A-B --image IMAGE",
		Short: "Print a Job that runs a range of seeds on many machines",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q; there are job, job part and job gather", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			job, err := o.job()
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(job)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.seeds, "seeds", "", "the range of seeds, as A-B")
	f.StringVar(&o.image, "image", "", "an image whose entry point is seedsim")
	f.StringVar(&o.scenario, "scenario", "all", "the scenario to run, or all")
	f.StringVar(&o.name, "name", "seedsim", "the name of the Job")
	f.StringVar(&o.cpu, "cpu", "1", "the CPUs that each pod requests")
	f.IntVar(&o.completions, "completions", 100, "the number of indices, at most one per seed")
	f.IntVar(&o.parallelism, "parallelism", 10, "the number of pods at once")
	c.AddCommand(jobPartCommand(), jobGatherCommand())
	return c
}

// job returns the Job, whose indices share the range.
func (o *jobOptions) job() (*batchv1.Job, error) {
	all, cpu, err := o.parse()
	if err != nil {
		return nil, err
	}
	// The range has at least one seed, and its length may be 1<<63, which is no int.
	completions := int32(min(uint64(o.completions), all.length()))
	parallelism := min(int32(o.parallelism), completions)
	backoff := int32(jobRetries)
	mode := batchv1.IndexedCompletion
	labels := map[string]string{"app.kubernetes.io/name": "seedsim"}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: o.name, Labels: labels},
		Spec: batchv1.JobSpec{
			CompletionMode: &mode, Completions: &completions, Parallelism: &parallelism,
			BackoffLimitPerIndex: &backoff, PodFailurePolicy: jobFailurePolicy(),
			// Where limits are per index, none for all of them is the default; the field says so.
			MaxFailedIndexes: &completions,
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       o.podSpec(all, completions, cpu),
			},
		},
	}, nil
}

// parse checks the flags.
func (o *jobOptions) parse() (all seeds, cpu resource.Quantity, err error) {
	if all, err = parseAnySeeds(o.seeds); err != nil {
		return all, cpu, err
	}
	if _, err := reference.ParseNormalizedNamed(o.image); err != nil {
		return all, cpu, fmt.Errorf("--image %q: %w", o.image, err)
	}
	if isFile(o.scenario) {
		return all, cpu, fmt.Errorf("--scenario %s: a file is not in the image; want a name", o.scenario)
	}
	if _, err := find(o.scenario); err != nil {
		return all, cpu, fmt.Errorf("--scenario: %w", err)
	}
	// The names of the pods are longer, and are host names.
	if problems := validation.IsDNS1123Label(o.name); len(problems) > 0 || len(o.name) > 50 {
		return all, cpu, fmt.Errorf("--name %q: want at most 50 of a-z, 0-9 and -", o.name)
	}
	if cpu, err = resource.ParseQuantity(o.cpu); err != nil || cpu.Sign() <= 0 {
		return all, cpu, fmt.Errorf("--cpu %q: want a number of CPUs, as 2 or 500m", o.cpu)
	}
	for _, count := range []struct {
		flag string
		n    int
	}{{"completions", o.completions}, {"parallelism", o.parallelism}} {
		if count.n < 1 || count.n > jobPartsMax {
			return all, cpu, fmt.Errorf("--%s %d: want 1 to %d", count.flag, count.n, jobPartsMax)
		}
	}
	return all, cpu, nil
}

// jobFailurePolicy returns what follows from the end of a pod: an index with a run that failed is
// not repeated, because it would fail again, and the loss of a node is not counted. An index whose
// pod failed otherwise is repeated, with the same seeds.
func jobFailurePolicy() *batchv1.PodFailurePolicy {
	container := jobContainer
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionFailIndex,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: &container, Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
				Values: []int32{exitFailed},
			}},
		{Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
				{Type: v1.DisruptionTarget, Status: v1.ConditionTrue},
			}},
	}}
}

// podSpec returns the pod of each index.
func (o *jobOptions) podSpec(all seeds, parts int32, cpu resource.Quantity) v1.PodSpec {
	no, yes, user := false, true, int64(jobUser)
	return v1.PodSpec{
		RestartPolicy:                v1.RestartPolicyNever,
		AutomountServiceAccountToken: &no,
		EnableServiceLinks:           &no,
		SecurityContext: &v1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user,
			RunAsGroup: &user, SeccompProfile: &v1.SeccompProfile{
				Type: v1.SeccompProfileTypeRuntimeDefault}},
		Containers: []v1.Container{{
			Name: jobContainer, Image: o.image,
			Args: []string{"job", "part", "--scenario=" + o.scenario,
				"--seeds=" + all.String(), "--of=" + strconv.Itoa(int(parts)),
				"--jobs=" + strconv.FormatInt(max(1, cpu.Value()), 10),
				"--result=" + v1.TerminationMessagePathDefault},
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: cpu, v1.ResourceMemory: resource.MustParse("256Mi")}},
			SecurityContext: &v1.SecurityContext{AllowPrivilegeEscalation: &no,
				ReadOnlyRootFilesystem: &yes,
				Capabilities:           &v1.Capabilities{Drop: []v1.Capability{"ALL"}}},
		}},
	}
}

// part returns part i of n parts of the range, of which none is empty if the range has n seeds or
// more. The parts before the rest of the division are longer by one.
func (r seeds) part(i, n uint64) seeds {
	each, rest := r.length()/n, r.length()%n
	from := r.from + i*each + min(i, rest)
	if i < rest {
		each++
	}
	return seeds{from, from + each - 1}
}

func (r seeds) length() uint64 { return r.to - r.from + 1 }

func (r seeds) String() string { return fmt.Sprintf("%d-%d", r.from, r.to) }

// jobResult is what a pod says of its index, in its termination message.
type jobResult struct {
	Index    uint64       `json:"index"`
	Seeds    string       `json:"seeds"`
	Runs     uint64       `json:"runs"`
	Failures uint64       `json:"failures"` // First has the first of them
	First    []jobFailure `json:"first,omitempty"`
	Hash     string       `json:"hash"` // of all runs
}

// jobFailure is a run that failed. The log has its message.
type jobFailure struct {
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	Oracle   string `json:"oracle"`
}

const (
	// jobFailuresMax is how many failures of an index are listed, so that a result is shorter than a
	// termination message may be, 4096 bytes: each has about 80.
	jobFailuresMax = 40
	// jobBatch is how many seeds are run before their verdicts are dropped.
	jobBatch = 20
)

func jobPartCommand() *cobra.Command {
	var scenario, seedRange, index, result string
	var of uint64
	var jobs int
	c := &cobra.Command{
		Use:   "part --seeds A-B --of N",
		Short: "Run the seeds of one index of a Job; the pods of a Job do this",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := parseAnySeeds(seedRange)
			if err != nil {
				return err
			}
			if of < 1 || of > all.length() {
				return fmt.Errorf("--of %d: want 1 to %d, one for each seed", of, all.length())
			}
			if err := checkJobs(jobs); err != nil {
				return err
			}
			i, err := strconv.ParseUint(index, 10, 64)
			if err != nil || i >= of {
				return fmt.Errorf("--index %q: want 0 to %d; a Job sets it by %s", index, of-1,
					indexVariable)
			}
			part := all.part(i, of)
			res := &jobResult{Index: i, Seeds: part.String()}
			if err := res.run(c, scenario, part, jobs); err != nil {
				return err
			}
			return res.end(c, result)
		},
	}
	f := c.Flags()
	f.StringVar(&scenario, "scenario", "all", "the scenario to run, or all")
	f.StringVar(&seedRange, "seeds", "", "the range of seeds of all indices, as A-B")
	f.Uint64Var(&of, "of", 1, "the number of indices that share the range")
	f.StringVar(&index, "index", os.Getenv(indexVariable), "the index to run, from 0")
	addJobs(c, &jobs)
	f.StringVar(&result, "result", "", "the file to write the result to, besides the output")
	return c
}

// run runs the scenarios with the seeds of an index, and prints a report of each batch.
func (res *jobResult) run(c *cobra.Command, scenario string, part seeds, jobs int) error {
	list, err := find(scenario)
	if err != nil {
		return err
	}
	hash := newJobHash()
	for from := part.from; ; from += jobBatch {
		batch := seeds{from, min(part.to, from+jobBatch-1)}
		tasks := newTasks(list, scenario, batch, strategy{})
		rep, err := runAll(tasks, jobs, false, newProgress(os.Stderr))
		if err != nil {
			return err
		}
		rep.What = fmt.Sprintf("%s seeds %s", scenario, batch)
		if err := rep.print(c.OutOrStdout(), false); err != nil && !errors.Is(err, errFailed) {
			return err
		}
		hash.add(rep.Hash)
		res.Runs += uint64(len(tasks))
		res.Failures += uint64(len(rep.Failures))
		for _, f := range rep.Failures {
			if len(res.First) < jobFailuresMax {
				res.First = append(res.First, jobFailure{f.Scenario, f.Seed, f.Oracle})
			}
		}
		if batch.to == part.to {
			break
		}
	}
	res.Hash = hash.String()
	return nil
}

// end prints the result, writes it to a file, and fails if a run has failed.
func (res *jobResult) end(c *cobra.Command, file string) error {
	text, err := json.Marshal(res)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%s\n", text)
	if file != "" {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("--result: %w", err)
		}
	}
	if res.Failures > 0 {
		return errFailed
	}
	return nil
}
