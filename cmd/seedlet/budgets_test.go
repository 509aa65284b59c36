package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"seedlet.dev/core/budget"
)

const budgetsPath = "../../docs/budgets.md"

const budgetsHead = `# What one pod may cost

The API server bounds the size of a pod, not what the pod costs its node. The kubelet has none of
these bounds. What exceeds one concerns that pod alone: the pod is not started, the container or
volume is not created, the operation waits or fails, or the message is cut, as the column "when"
says. Except for operations in flight and what is cut, its status and an event name the number and
the bound. Static pods, which tenants do not write, are exempt from the bounds that are checked
before the first sandbox.

The metric ` + "`seedlet_budget`" + ` has each bound by its name, and ` +
	"`seedlet_budget_refusals_total`" + ` how often
pods were over it. ` + "`core/budget`" + ` holds the table; this page is generated from it by
` + "`go test ./cmd/seedlet -run TestBudgetsPage -update`" + `, and the same test compares the two.

| name | bound | what is counted | when, and what follows | why |
|---|---|---|---|---|
`

// The page has the table of package budget.
func TestBudgetsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString(budgetsHead)
	for _, b := range budget.Table {
		fmt.Fprintf(&page, "| `%s` | %d | %s | %s | %s |\n", b.Name, b.Max, b.Counted, b.When, b.Reason)
	}
	if *update {
		if err := os.WriteFile(budgetsPath, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(budgetsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page.String() {
		t.Error("docs/budgets.md is not what package budget says: run the test with -update")
	}
}
