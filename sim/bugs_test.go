package sim_test

import (
	"strings"
	"testing"

	"seedlet.dev/sim/oracle"
)

// knownBugs are bugs that the kubelet really had, by the numbers of the upstream issues, and what
// finds each of them here: a mutant of the core that has the bug, the scenario that triggers it and
// the oracle that reports it. A row without a mutant names the issue of this project that adds it.
var knownBugs = []struct {
	issues, what             string
	oracle, scenario, mutant string
	later                    string
}{
	{
		issues: "93886",
		what:   "relist hung for minutes, yet the health timestamp was updated",
		oracle: "health", scenario: "runtime-restart",
		mutant: "a failed relist updates the health timestamp",
	},
	{
		issues: "24819 75065",
		what:   "inspecting a pod failed, so no event came and it stayed Terminating",
		oracle: "progress", scenario: "runtime-flaky",
		mutant: "a failed inspection is not repeated",
	},
	{
		issues: "120941 121349 123087",
		what:   "evented PLEG reported an empty or stale status; containers were created twice",
		oracle: "one-run", scenario: "crashloop",
		mutant: "plan on an observation older than the last write",
	},
	{
		issues: "127814",
		what:   "a timestamp in the wrong unit made all later events look old",
		oracle: "back-off", scenario: "crashloop",
		mutant: "an observation counts as one of the future",
	},
	{
		issues: "124704",
		what:   "workers waited for a newer status that never came",
		oracle: "progress", scenario: "runtime-flaky",
		mutant: "stale state stays stale until something changes",
	},
	{
		issues: "104648",
		what:   "manifest removed and recreated with the same UID stays in error",
		oracle: "progress", scenario: "uid-reuse",
		mutant: "a pod that has ended is never forgotten",
	},
	{
		issues: "97722 112814",
		what:   "two static pods of one full name ran at once",
		oracle: "full-name", scenario: "manifest-churn",
		mutant: "two pods of one full name at once",
	},
	{
		issues: "107733",
		what:   "several updates during termination; the pod never starts",
		oracle: "progress", scenario: "uid-reuse",
		mutant: "a pod that comes back after its termination is not planned",
	},
	{
		issues: "106734",
		what:   "a stop based on a stale cache failed with NotFound for ever",
		oracle: "progress", scenario: "mix",
		mutant: "NotFound while stopping is an error, and lists are not believed",
	},
	{
		issues: "58711 105358",
		what:   "Failed became Succeeded; an evicted pod regressed",
		oracle: "terminal-phase", scenario: "agent-restarts",
		mutant: "a terminal phase is forgotten when the agent restarts",
	},
	{
		issues: "106884 104560",
		what:   "terminal phase written while containers still held resources",
		oracle: "terminal-phase", scenario: "deadlines",
		mutant: "a terminal phase before the containers have ended",
	},
	{
		issues: "116410",
		what:   "a deleted running pod never got a terminal phase",
		oracle: "progress", scenario: "node-churn",
		mutant: "a deleted pod gets no terminal phase",
	},
	{
		issues: "63814 129385",
		what:   "a hash over serialised specs changed; every container restarted",
		oracle: "needless-stop", scenario: "agent-restarts",
		mutant: "the hash of a container changes when the agent restarts",
	},
	{
		issues: "41032",
		what:   "image GC had freed the disk, stale stats still evicted pods",
		later:  "issue 6, A16",
	},
	{
		issues: "40474",
		what:   "eviction and clean-up both killed pods",
		later:  "issue 6, A16",
	},
	{
		issues: "115201 128790",
		what:   "usage of dead containers and terminated pods ignored",
		later:  "issue 6, A16",
	},
	{
		issues: "72573 76598",
		what:   "static critical pod evicted; evicted static pod was never restarted",
		later:  "issue 6, A16",
	},
	{
		issues: "110755 112443",
		what:   "node went down with final statuses unsent",
		later:  "issue 6, A17",
	},
	{
		issues: "115148",
		what:   "next priority group killed before volumes were unmounted",
		later:  "issue 6, A17",
	},
	{
		issues: "113940",
		what:   "static pods without priority stopped first",
		later:  "issue 6, A17",
	},
	{
		issues: "98087 97951 105215",
		what:   "inhibitor taken repeatedly; bad signal panicked; probes went on",
		oracle: "probes", scenario: "probes",
		mutant: "probing continues after a kill has started",
	},
	{
		issues: "104531",
		what:   "after a reboot a pod runs but shows Terminated",
		oracle: "progress", scenario: "reboot",
		mutant: "the status is that of the first sandbox",
	},
	{
		issues: "100277 135795",
		what:   "readiness flapped when the agent restarted",
		oracle: "probes", scenario: "probes",
		mutant: "readiness lost at agent restart",
	},
	{
		issues: "141155",
		what:   "the started flag of an old container was given to its replacement",
		oracle: "probes", scenario: "probes",
		mutant: "the record of a container is given to its replacement",
	},
	{
		issues: "105523 118559 124345 138446 123859 99708",
		what:   "admission ran again after a restart and rejected pods",
		oracle: "admission", scenario: "admission",
		mutant: "admission runs again after a restart",
	},
	{
		issues: "113979 120150 75345 60645",
		what:   "volumes unmounted under live containers; orphans left",
		oracle: "volumes", scenario: "volumes",
		mutant: "volumes unmounted while containers terminate",
	},
	{
		issues: "139045",
		what:   "a failed periodic republish deleted a CSI mount",
		later:  "issue 7, A11",
	},
	{
		issues: "37447 8878",
		what:   "finished pods ran again after a restart",
		oracle: "restart-policy", scenario: "restart-rules",
		mutant: "a completed container runs again",
	},
	{
		issues: "120247",
		what:   "app container started before init had finished after a reboot",
		oracle: "init-order", scenario: "reboot",
		mutant: "app containers do not wait for init after a reboot",
	},
	{
		issues: "126543 125935 141766",
		what:   "init stuck in Created; sidecars not ended gracefully; their probes went on",
		oracle: "sidecar-order", scenario: "sidecars",
		mutant: "sidecars stopped together with the app containers",
	},
	{
		issues: "84783 136604 135711 127653",
		what:   "CPU checkpoint torn, in two steps, or of an older schema",
		later:  "issue 7, A13",
	},
	{
		issues: "126033 132851 139522",
		what:   "an infeasible resize applied by a restart; stale conditions",
		later:  "issue 7, A14",
	},
	{
		issues: "83471",
		what:   "one slow pull blocked all",
		oracle: "expect", scenario: "image-pulls",
		mutant: "no image status is requested while another image is pulled",
	},
	{
		issues: "48638 121793",
		what:   "a dead TCP connection stopped heartbeats for many minutes",
		oracle: "heartbeat", scenario: "api-partition",
		mutant: "a lease that was not renewed in time is given up",
	},
}

// Every row of the table names an existing mutant, scenario and oracle, and no row is missing.
// Failed expectations of a scenario are reported under the name "expect", besides the oracles.
func TestKnownBugs(t *testing.T) {
	const rows, later = 34, 10
	oracles, found, mutated := map[string]bool{"expect": true}, map[string]bool{}, map[string]bool{}
	for _, e := range oracle.Catalogue() {
		oracles[e.Name] = true
	}
	for _, s := range loadAll(t) {
		found[s.Metadata.Name] = true
	}
	for _, m := range mutants {
		mutated[m.name+" in "+m.scenario] = true
	}
	isLater, seen := 0, map[string]bool{}
	for _, k := range knownBugs {
		for _, issue := range strings.Fields(k.issues) {
			if seen[issue] {
				t.Errorf("issue %s is in two rows", issue)
			}
			seen[issue] = true
		}
		switch {
		case k.what == "":
			t.Errorf("%s: the row has no description", k.issues)
		case k.later != "":
			isLater++
			continue
		case !mutated[k.mutant+" in "+k.scenario]:
			t.Errorf("%s: there is no mutant %q in %s", k.issues, k.mutant, k.scenario)
		}
		if !oracles[k.oracle] || !found[k.scenario] {
			t.Errorf("%s: there is no oracle %q or no scenario %q", k.issues, k.oracle, k.scenario)
		}
	}
	if len(knownBugs) != rows || isLater != later {
		t.Errorf("%d rows, %d for later; want %d and %d", len(knownBugs), isLater, rows, later)
	}
}

// oracleOf returns the oracle that finds a mutant, according to the table; empty if no row has it.
func oracleOf(mutant string) string {
	for _, k := range knownBugs {
		if k.mutant == mutant {
			return k.oracle
		}
	}
	return ""
}
