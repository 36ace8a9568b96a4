"""History: what each group did in the last hour, day and month, in a file of fixed size that outlives processes.

==============  ====================================================================================================
``history``     what an open store has of it: the housekeeper's task, and the last record at the close
``rings``       the file: records of 10 seconds, a minute and 15 minutes, and the head that counts them
``recorder``    what the housekeeper adds every 10 seconds
``figures``     a period of it: rates, percentiles and time to drain of each group
==============  ====================================================================================================
"""
