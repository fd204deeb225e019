"""What speaks against a source is not for ever."""

import numpy as np

from paceline.control.belief import Belief


def observe(belief, *kept, times):
    for _ in range(times):
        belief.observe(np.ones(len(kept), np.int32), np.array(kept, np.int32), censored=False)


def test_a_depth_given_up_is_believed_to_be_like_the_others_again():
    belief = Belief("m", 4)
    observe(belief, 1, 0, times=20)
    assert belief.rates()[1] < 0.15
    observe(belief, 1, times=500)
    assert belief.rates()[1] > 0.4


def test_a_source_left_out_comes_back_with_a_few_right_guesses():
    belief = Belief("m", 4)
    observe(belief, 0, times=30)
    assert belief.rates()[0] < 0.1
    belief.turn(on=False)
    observe(belief, 1, times=3)
    assert belief.rates()[0] > 0.5
