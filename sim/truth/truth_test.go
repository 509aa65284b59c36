package truth

import (
	"fmt"
	"testing"
)

func TestSubscribersSeeFactsInOrder(t *testing.T) {
	var log Log
	var seen []string
	log.Add(Fact{Kind: PowerLost})
	for _, name := range []string{"a", "b"} {
		log.Subscribe(func(f Fact) { seen = append(seen, name+" "+string(f.Kind)) })
	}
	log.Add(Fact{Kind: SandboxCreated})
	log.Add(Fact{Kind: SandboxReady})
	want := "[a SandboxCreated b SandboxCreated a SandboxReady b SandboxReady]"
	if got := fmt.Sprint(seen); got != want || log.Count() != 3 {
		t.Errorf("%d facts, seen %s", log.Count(), got)
	}
}
