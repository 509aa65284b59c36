package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"seedlet.dev/world"
)

// A tree for which there is not enough time takes nothing from those after it, and of several such
// trees each has a part of what is left.
func TestTimeIsSharedByTrees(t *testing.T) {
	const second = time.Second
	needs := map[string]time.Duration{"endless": time.Hour, "a": second, "slow": 4 * second,
		"b": second, "endless too": time.Hour}
	left, spent := 28*second, map[string]time.Duration{}
	paths := []string{"endless", "a", "slow", "b", "endless too"}
	trees := shareTime(&world.MeasureTrees{Paths: paths}, func() time.Duration { return left },
		func(path string, most time.Duration) world.TreeMeasured {
			took := min(most, needs[path])
			left, spent[path] = left-took, spent[path]+took
			return world.TreeMeasured{Inodes: int64(took), Unfinished: took < needs[path]}
		})
	for i, path := range paths {
		if wantUnfinished := needs[path] == time.Hour; trees[i].Unfinished != wantUnfinished {
			t.Errorf("%s: %+v, unfinished: want %t", path, trees[i], wantUnfinished)
		}
	}
	if left < 0 || spent["endless"] > 15*second || trees[4].Inodes == 0 {
		t.Errorf("%v are left, spent %v", left, spent)
	}
}

// What was found of a tree until the deadline is known.
func TestTreesUntilTheDeadline(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	trees := func(left time.Duration) []world.TreeMeasured {
		ctx, cancel := context.WithTimeout(t.Context(), answerMargin+left)
		defer cancel()
		return measureTrees(ctx, &world.MeasureTrees{Paths: []string{dir, dir + "/none"}}).Trees
	}
	if got := trees(time.Minute); got[0].Inodes != 2 || got[0].Bytes < 8192 || got[0].Unfinished ||
		got[1] != (world.TreeMeasured{}) {
		t.Errorf("measured %+v", got)
	}
	if got := trees(0); !got[0].Unfinished {
		t.Errorf("without time: %+v", got)
	}
}

// What small trees leave of the time is for those that need more than their part.
func TestRestOfTheTimeIsUsed(t *testing.T) {
	left, needs := 14*time.Second, map[string]time.Duration{"slow": 4 * time.Second}
	paths := []string{"slow", "a", "b", "c", "d", "e", "f", "g", "h", "i"}
	trees := shareTime(&world.MeasureTrees{Paths: paths}, func() time.Duration { return left },
		func(path string, most time.Duration) world.TreeMeasured {
			took := min(most, needs[path])
			left -= took
			return world.TreeMeasured{Unfinished: took < needs[path]}
		})
	if trees[0].Unfinished {
		t.Errorf("%v are left, and a tree is unfinished", left)
	}
}

// However many trees of one owner cannot be finished, those of another one are.
func TestTimeIsSharedByOwners(t *testing.T) {
	request, needs := &world.MeasureTrees{}, map[string]time.Duration{"own": 3 * time.Second}
	for i := range 50 {
		path := fmt.Sprint("endless", i)
		request.Paths, request.Owners = append(request.Paths, path), append(request.Owners, "greedy")
		needs[path] = time.Hour
	}
	request.Paths, request.Owners = append(request.Paths, "own"), append(request.Owners, "other")
	left := 13 * time.Second
	trees := shareTime(request, func() time.Duration { return left },
		func(path string, most time.Duration) world.TreeMeasured {
			took := min(most, needs[path])
			left -= took
			return world.TreeMeasured{Unfinished: took < needs[path]}
		})
	if trees[50].Unfinished || !trees[0].Unfinished || left < 0 {
		t.Errorf("the tree of another owner: %+v; %v are left", trees[50], left)
	}
}
